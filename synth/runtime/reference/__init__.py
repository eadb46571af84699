"""The reference executor: a discrete-event simulation in NumPy."""
