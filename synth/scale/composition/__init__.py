"""Schedules composed of phases over the boxes of a machine, pipelined by a small linear program."""
