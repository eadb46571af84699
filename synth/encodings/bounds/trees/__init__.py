"""Column generation over time-expanded trees."""
