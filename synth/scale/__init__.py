"""Schedules from flows and packings: exact rates and trees for hundreds to thousands of ranks, and the methods around
them.

Allgather, reduce-scatter, broadcast and reduce on any topology, without a list of routes from rank to rank::

    from synth.scale.fabric.fabric import fabric          # Topology -> Fabric: CSR-like int64 edges, ports and NICs as
                                                          edges or nodes
    from synth.scale.bounds.throughput_cut import throughput        # Fabric, collective -> Throughput: exact time,
                                                                    bandwidth, cut, certificate
    from synth.scale.bounds.multi_cut_lp import sharpened      # Throughput -> a sharper one where switches are unequal
                                                               (shared NICs)
    from synth.scale.forests.build import build          # Fabric, collective -> Built: a Forest, its bound, the gap
                                                         between them
    from bench.spanning_forest_check import verify         # Forest -> Verified: trees, ways, symmetries, every
                                                               load; trusts nothing here
    from synth.checker.certificates.throughput_cuts import check     # certificate, Topology -> seconds per GB of a
                                                                     shard that no schedule beats

    built = build(fabric(topology("dgx-a100*8")))
    verify(built.forest).bandwidth                 # GB/s, reached; built.bound.bandwidth is the bound, built.gap == 0:
                                                   optimal

All take `collective` ("allgather", "reduce-scatter", "broadcast", "reduce") and `root`; times are exact fractions, in
shards per unit of bandwidth on a `Fabric` and in seconds per GB of a shard on a `Forest`. `Built.bound.certificate`
proves its bound.

`build` tries `symmetric` first (`grow`: one tree for each orbit of roots, a flow over orbits of links), then `packing`
(`pack`: switches split off, trees grown); both take any time at or above the bound. A `Forest`
(`synth.model.spanning_forest`) keeps one tree for each orbit and generators for the others; `Forest.trees()` writes
them out one by one.

    fabric gadgets          Topology to Fabric
    maxflow cuts sharper    maximum flows, Newton's method on cuts, several cuts weighed together
    automorphisms           symmetries of a fabric, checked; groups that move every rank
    routes budgets symmetric                symmetric forests
    splitting packing balance               forests of anything else
    shortest shorten        ways through switches that schedules may take; packed trees put onto them
    trees forests           what both make, and the choice between them
    tau                     allreduce on undirected spanning trees
    inout                   allreduce where directions differ: trees up to a rank, other trees down from it
"""
