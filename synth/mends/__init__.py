"""Mends: changes of a program's schedule that take fewer rounds, each replayed. `improve` tries them in turn."""
