"""Machines, generic families, clusters of them, and users' files: every way to a `Topology`."""

from __future__ import annotations

from synth.topologies.families import FAMILIES
from synth.topologies.machines import MACHINES
from synth.topologies.names import ALIASES, topology

__all__ = ["ALIASES", "FAMILIES", "MACHINES", "topology"]
