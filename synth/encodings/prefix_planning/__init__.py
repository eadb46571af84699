"""Schedules of scans and other prefix sums, planned chunk by chunk on the time-expanded graph."""
