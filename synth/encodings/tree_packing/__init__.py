"""Schedules by column generation over time-expanded trees."""
