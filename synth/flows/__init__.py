"""Schedules from flows and packings: the τ forest of allreduce; the methods for hundreds of ranks will live here."""
