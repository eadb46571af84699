"""Tree packings where links differ widely: no more trees are tried than the weak links let through, or little more."""

from fractions import Fraction

from synth.flows import tau
from synth.topology import Link, Topology

WIDTHS = (Fraction(127, 10), Fraction(7, 3), Fraction(11, 10), Fraction(3))


def test_a_line_of_unlike_links_is_packed_by_its_weakest(monkeypatch):
    links = tuple(Link(*ends, width) for a, width in enumerate(WIDTHS) for ends in ((a, a + 1), (a + 1, a)))
    tried, real = [], tau._Packing

    def packing(ranks, edges, count):
        tried.append(count)
        assert count <= 33, "more trees than the weakest link has units"
        return real(ranks, edges, count)

    monkeypatch.setattr(tau, "_Packing", packing)
    made = tau.forest(Topology("line", 5, links).network())
    assert (made.rate, len(made.trees), tried) == (Fraction(33), 33, [33])
