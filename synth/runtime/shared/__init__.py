"""Programs between processes of one host: a rank a process, FIFOs in one shared segment."""
