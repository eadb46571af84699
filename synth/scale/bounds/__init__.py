"""Lower bounds at scale: throughput cuts, partitions, reachability."""
