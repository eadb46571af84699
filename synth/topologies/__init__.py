"""Machines, generic families, clusters of them, users' files and their changes: every way to a `Topology`."""

from __future__ import annotations

from synth.topologies.families import FAMILIES
from synth.topologies.machines import MACHINES
from synth.topologies.name_grammar import ALIASES, summaries, topology, topology_or_none

__all__ = ["ALIASES", "FAMILIES", "MACHINES", "summaries", "topology", "topology_or_none"]
