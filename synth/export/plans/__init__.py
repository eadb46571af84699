"""Tuning plans in the formats of runtimes: folders of algorithms, CSV tables, registration code."""
