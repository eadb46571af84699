"""Disjoint rings of a machine: search, bound and check."""
