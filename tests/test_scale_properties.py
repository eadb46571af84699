"""Any small fabric: what flow methods claim at any scale holds against the exact bounds, and every schedule replays
twice."""

from fractions import Fraction
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.documents import scale_frontier
from synth.checker.schedule import compressed_replay, replay
from synth.encodings import bounds
from synth.errors import InfeasibleError, UndecidedError
from synth.model.collective import collective
from synth.model.topology import Limit, Link, Topology
from synth.scale.search import frontier

NAMES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")


@st.composite
def fabrics(draw):
    """3 to 6 ranks, up to two switches, links of unequal directions, and ports that several links share."""
    ranks, switches = draw(st.integers(3, 6)), draw(st.integers(0, 2))
    ends = ranks + switches
    pairs = st.tuples(st.integers(0, ends - 1), st.integers(0, ends - 1)).filter(lambda p: p[0] != p[1])
    chosen = draw(st.lists(pairs, min_size=ranks, max_size=3 * ranks, unique=True))
    chosen += [(r, (r + 1) % ranks) for r in range(ranks) if draw(st.booleans()) or not switches]
    chosen = list(dict.fromkeys([*chosen, *((b, a) for a, b in chosen if draw(st.integers(0, 3)))]))
    links = tuple(Link(a, b, Fraction(draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 2])))) for a, b in chosen)
    limits = []
    for rank in range(ranks):
        out = tuple(i for i, k in enumerate(links) if k.src == rank)
        if len(out) > 1 and not draw(st.integers(0, 3)):
            limits.append(Limit(f"port {rank}", out, Fraction(draw(st.integers(1, 4)))))
    return Topology("drawn", ranks, links, tuple(limits), tuple(f"s{i}" for i in range(switches)))


@settings(max_examples=8, deadline=None)
@given(fabrics(), st.sampled_from(NAMES))
def test_bounds_never_exceed_the_exact_ones_and_schedules_replay(machine, name):
    network = machine.network()
    task = collective(name, machine.ranks)
    try:
        found = frontier(machine, name)
    except InfeasibleError:
        far = network.distances
        pairs = ((a, b) for a in range(machine.ranks) for b in range(machine.ranks))
        needed = {"broadcast": lambda a, b: a == 0, "reduce": lambda a, b: b == 0}.get(name, lambda a, b: True)
        assert any(far[a][b] is None for a, b in pairs if needed(a, b))
        return
    assert scale_frontier.bound(found.certificate, machine) == found.bound
    try:
        exact = bounds.flow(network, task, None).value
    except (InfeasibleError, UndecidedError):
        exact = inf
    # The flow bound holds for all ways through switches, those of a Network are the shortest: its bound may be higher,
    # never lower.
    assert found.bound <= exact
    for point in (*found.points[:2], *found.points[-1:]):
        made = point.schedule
        checked = compressed_replay.replay(made)
        assert (checked.steps, checked.rounds_per_chunk) == (point.steps, point.rounds_per_chunk)
        assert point.rounds_per_chunk >= found.bound and point.steps >= found.least_steps
        schedule = made.written_out()
        replay.schedule(schedule)
        assert Fraction(schedule.rounds, schedule.chunks) == point.rounds_per_chunk >= exact
