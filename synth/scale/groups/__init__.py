"""Several process groups at once on one machine."""
