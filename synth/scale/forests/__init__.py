"""Spanning forests that reach the throughput bound: arborescence packing, plain or symmetric."""
