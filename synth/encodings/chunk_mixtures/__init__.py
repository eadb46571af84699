"""Schedules as mixtures of single-chunk schedules."""
