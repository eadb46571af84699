"""Checkers of whole documents, one schema a file: every field is required, derived again, or refused."""
