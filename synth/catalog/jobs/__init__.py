"""Batch jobs that build a catalog: the job file, its plan, its queue and its runners."""
