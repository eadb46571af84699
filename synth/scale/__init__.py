"""Schedules from flows and arborescence packings, for hundreds to thousands of ranks: exact rates, forests, frontiers.

    search.py    the frontier: bound and points
    composition/ schedules composed of phases inside the boxes and over the network
    forests/     symmetric trees, re-rooting, arborescence packing, edge splitting, pipelining, breadth-first broadcast
    alltoall/    concurrent flow, flow decomposition, list scheduling of paths
    baselines/   rings and shortest paths for comparison, allocations
    bounds/      throughput cuts, multi-cut LP, allreduce partitions (graph strength), reachability
    fabric/      Topology to Fabric with capacity gadgets, automorphisms, shortest paths, loads, capacity balancing

Allgather, reduce-scatter, broadcast and reduce need no list of routes from rank to rank::

    from synth.scale.fabric.fabric import fabric
    from synth.scale.forests.build import build

    found = build(fabric(topology("dgx-a100*8")))
    found.forest, found.gap      # trees, and their time over the bound's, less 1

    fabric            Topology -> Fabric: int64 arrays of edges; ports and NICs are edges or nodes
    throughput        Fabric, collective -> Throughput: exact time, bandwidth, cut, certificate
    multi_cut_bound   Throughput -> a higher bound where switches are unbalanced (shared NICs)
    build             Fabric, collective -> BoundedForest: a SpanningForest and its bound, which has the certificate

They take `collective` ("allgather", "reduce-scatter", "broadcast", "reduce") and `root`. Times are exact fractions, in
shards per unit of bandwidth on a `Fabric` and in seconds per GB of a shard on a `SpanningForest`.

`build` tries `symmetric` first (`grow`: one tree for each orbit of roots, a flow over orbits of links), then `packing`
(`pack`: edge splitting of switches, then arborescence packing). Both accept any time at or above the bound. For a
broadcast or reduce the trees of `grow` are re-rooted (`reroot`) before. A `SpanningForest` holds one tree for each
orbit and generators of the group.
"""
