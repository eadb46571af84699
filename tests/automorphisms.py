"""Images of routes under permutations of ranks."""

from collections.abc import Sequence

from synth.model.symmetry.automorphisms import AutomorphismSearch
from synth.model.topology import Network


def route_permutation(network: Network, ranks: Sequence[int]) -> tuple[int, ...] | None:
    """Return where `ranks` sends each route, or None if it is no automorphism."""
    image = AutomorphismSearch(network).extended(ranks)
    return image.routes if image else None
