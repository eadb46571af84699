"""Batch jobs that build a catalog: the job file, its tasks, and their run in child processes or on Dask."""
