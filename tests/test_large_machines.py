"""The frontier at scale: points, bounds and files, through the API and the command line."""

from fractions import Fraction
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import synth
from synth.checker.documents import scale_frontier
from synth.checker.schedule import compressed_replay, replay
from synth.encodings import bounds
from synth.errors import InfeasibleError, UndecidedError, UsageError, VerificationError
from synth.model.collective import collective
from synth.model.topology import Limit, Link, Topology
from synth.scale.search import frontier
from synth.topologies import modify, topology
from tests.command_line import synth as cli

COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize(
    "name", ["dgx1", pytest.param("dgx-a100*2", marks=pytest.mark.slow), "torus:3x4", "fat-tree:4"]
)
def test_every_point_is_right_and_no_better_than_the_bound(name, collective):
    machine = topology(name)
    found = frontier(machine, collective)
    assert found.points
    assert scale_frontier.bound(found.certificate, machine) == found.bound
    for few, many in pairwise(found.points):
        assert few.steps < many.steps and few.rounds_per_chunk > many.rounds_per_chunk
    assert found.points[0].steps >= found.least_steps
    for point in found.points[:4]:
        made = point.schedule
        numbers = point.steps, point.rounds_per_chunk, point.chunks
        assert (made.step_count, made.rounds_per_chunk, made.chunks) == numbers
        assert point.rounds_per_chunk >= found.bound
        compressed_replay.replay(made)
    replay.schedule(found.points[0].schedule.written_out())


def test_tori_have_one_point_and_it_is_optimal():
    found = frontier(topology("torus:8x8"), "allgather")
    assert [(p.steps, p.rounds_per_chunk) for p in found.points] == [(8, Fraction(63, 4))]
    assert found.gap(found.points[0]) == 0
    assert found.best(1 << 20) is found.points[0]


def test_the_engine_is_chosen_by_size():
    assert synth.frontier("ring:6", "allgather", engine="flow").engine == "flow"
    assert synth.frontier("ring:6", "allgather").engine == "exact"
    assert synth.frontier("torus:9x9", "allgather").engine == "flow"
    for wrong in ({"engine": "quick"}, {"engine": "flow", "sizes": [1] * 6}, {"engine": "flow", "roots": [0, 1]}):
        with pytest.raises(UsageError):
            synth.frontier("ring:6", "allgather", **wrong)
    with pytest.raises(UsageError):
        synth.frontier("ring:6", "scan", engine="flow")
    with pytest.raises(InfeasibleError):
        frontier(modify.apply(topology("line:4"), without=("1-2",)), "allreduce")


def test_the_command_writes_files_that_verify(tmp_path):
    file, folder = tmp_path / "s.json", tmp_path / "s.schedules"
    assert "alltoall-lengths certificate" in cli("pareto --topo torus:9x9 --coll alltoall -o", file).stdout
    assert cli("verify", file, next(folder.glob("*.npz"))).stdout.count("verified") == 2


def test_bounds_at_scale_say_what_limits():
    for words, said in (
        ("torus:9x9 --coll alltoall", "alltoall-lengths"),
        ("dgx-a100*4 --coll allgather --engine flow", "266.667"),
        ("dgx2*2 --coll allgather --engine flow", "cuts together"),
        ("mi250*8 --coll allreduce", "the partition into 8 parts of 16"),
        ("dgx1 --coll reduce-scatter --engine flow", "must take in"),
        ("dgx1 --coll allgather", "deadline-cuts"),
    ):
        assert said in cli("bound --topo", words).stdout, words


@pytest.mark.parametrize(("name", "what"), [
    ("torus:5x5", "allgather"), ("torus:5x5", "reduce"),
    pytest.param("dgx-a100*2:net=odd-even", "alltoall", marks=pytest.mark.slow),
])  # fmt: skip
def test_the_least_number_of_steps_is_counted_again(name, what, tmp_path):
    machine = topology(name)
    doc = frontier(machine, what).to_json()
    scale_frontier.document(doc, tmp_path, machine)
    alone = doc | {"points": []}
    scale_frontier.document(alone | {"least_steps": 0}, tmp_path, machine)  # less than is true is true
    with pytest.raises(VerificationError, match="least_steps"):
        scale_frontier.document(alone | {"least_steps": doc["least_steps"] + 1}, tmp_path, machine)
    with pytest.raises(VerificationError, match="a point takes fewer"):
        scale_frontier.document(doc | {"least_steps": 10**6}, tmp_path, machine)


# ---------------------------------------------------------------- any small fabric: claims hold against exact bounds


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
