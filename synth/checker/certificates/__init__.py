"""Checkers of certificates: each adds a proof up again, in whole numbers or fractions, from the problem alone."""
