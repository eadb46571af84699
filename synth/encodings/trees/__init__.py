"""Schedules and bounds by column generation over time-expanded trees."""
