"""Values that say what lower bounds mean: bounds in time, and where a schedule loses rounds."""
