"""Tree packings where links differ widely: no more trees are tried than the weak links let through, or little more."""

from fractions import Fraction

from synth.encodings import spanning_tree_packing
from synth.model.topology import Link, Topology

WIDTHS = (Fraction(127, 10), Fraction(7, 3), Fraction(11, 10), Fraction(3))


def test_a_line_of_unlike_links_is_packed_by_its_weakest(monkeypatch):
    links = tuple(Link(*ends, width) for a, width in enumerate(WIDTHS) for ends in ((a, a + 1), (a + 1, a)))
    tried, real = [], spanning_tree_packing._Packing

    def packing(ranks, edges, count):
        tried.append(count)
        assert count <= 33, "more trees than the weakest link has units"
        return real(ranks, edges, count)

    monkeypatch.setattr(spanning_tree_packing, "_Packing", packing)
    made = spanning_tree_packing.forest(Topology("line", 5, links).network())
    assert (made.rate, len(made.trees), tried) == (Fraction(33), 33, [33])
