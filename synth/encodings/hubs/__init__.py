"""Schedules of combining collectives through hubs: sums go to a hub and from there to all."""
