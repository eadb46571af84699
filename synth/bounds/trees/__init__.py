"""The tree bound: branch and price over time-expanded trees."""
