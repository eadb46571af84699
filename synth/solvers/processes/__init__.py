"""Solvers in processes that can be killed: the fork server, jobs, and the deadline they share."""
