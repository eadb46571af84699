"""The kernel: its sources, how they are built, and the tables that it reads."""
