"""Schedules from flows and arborescence packings, for hundreds to thousands of ranks: exact rates, forests, frontiers.

Allgather, reduce-scatter, broadcast and reduce on any topology, without a list of routes from rank to rank::

    from synth.scale.fabric.fabric import fabric
    from synth.scale.bounds.throughput_cut import throughput
    from synth.scale.bounds.multi_cut_lp import multi_cut_bound
    from synth.scale.forests.build import build
    from bench.spanning_forest_check import verify
    from synth.checker.certificates.throughput_cuts import check

    built = build(fabric(topology("dgx-a100*8")))
    verify(built.forest).bandwidth      # GB/s that the forest reaches; built.bound.bandwidth is the bound

    fabric            Topology -> Fabric: int64 arrays of edges; ports and NICs are edges or nodes
    throughput        Fabric, collective -> Throughput: exact time, bandwidth, cut, certificate
    multi_cut_bound   Throughput -> a higher bound where switches are unbalanced (shared NICs)
    build             Fabric, collective -> Built: a Forest, its bound and their gap (0: optimal)
    verify            Forest -> Verified: trees, paths, symmetries, every load; trusts nothing here
    check             certificate, Topology -> lower bound in seconds per GB of a shard

They take `collective` ("allgather", "reduce-scatter", "broadcast", "reduce") and `root`. Times are exact fractions, in
shards per unit of bandwidth on a `Fabric` and in seconds per GB of a shard on a `Forest`.
`BoundedForest.bound.certificate` proves the bound.

`build` tries `symmetric` first (`grow`: one tree for each orbit of roots, a flow over orbits of links), then `packing`
(`pack`: edge splitting of switches, then arborescence packing). Both accept any time at or above the bound. A `Forest`
(`synth.model.spanning_forest`) holds one tree for each orbit and generators of the group. `Forest.trees()` lists all
trees.

    fabric/      Topology to Fabric with capacity gadgets, automorphisms, shortest paths, capacity balancing
    bounds/      throughput cuts, multi-cut LP, allreduce partitions (graph strength), single cuts, reachability
    forests/     symmetric trees, arborescence packing, edge splitting, re-rooting, pipelining
    allreduce/   paired in- and out-arborescences
    alltoall/    concurrent flow, flow decomposition, list scheduling of paths
    greedy/      breadth-first broadcast and rarest first
    groups/      several collectives at once on groups of ranks
    baselines/   rings, trees and other algorithms for comparison
    search.py    the frontier: bound and points
"""
