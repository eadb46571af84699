"""One frontier from all engines: which engine answers, and how their points are merged."""
