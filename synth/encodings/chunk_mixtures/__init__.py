"""Schedules of many chunks as mixtures of single-chunk schedules."""
