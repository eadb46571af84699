"""False documents at scale do not verify: compact schedules and what their archives claim, mended by nothing but the
truth."""

import io
import json
import zipfile
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from test_forged_at_scale import verdict, verified

from synth.checker import exact_sums
from synth.checker.documents import schedule_archive
from synth.checker.schedule import compressed_replay
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.compressed_schedule import CompressedSchedule
from synth.model.topology import Limit, Link, Topology
from synth.scale.search import frontier
from synth.topologies import topology
from tests.compressed_columns import columns


def ring(ranks: int, switches: int = 0) -> Topology:
    """A ring; of the last `switches` nodes each is a switch."""
    links = [Link(a, (a + d) % ranks, Fraction(1)) for a in range(ranks) for d in (1, ranks - 1)]
    return Topology(f"ring:{ranks}", ranks - switches, tuple(links), (), tuple(f"s{i}" for i in range(switches)))


def allgather(machine: str = "ring:4") -> CompressedSchedule:
    return frontier(topology(machine), "allgather").points[0].schedule


@pytest.mark.parametrize(
    "values", [[1 << 62] * 4, [-(1 << 63)] * 3, [(1 << 63) - 1, 1], [], [3, -5, 7], [1 << 53, 1, 1]]
)
def test_sums_are_those_of_python(values):
    assert exact_sums.exact_sum(np.array(values, np.int64)) == sum(values)


def test_what_fits_is_what_an_int64_holds_twice():
    exact_sums.check_fits((1 << 62) - 1, "sums", "x")
    with pytest.raises(VerificationError, match=f"x: sums add up to {1 << 62}"):
        exact_sums.check_fits(1 << 62, "sums", "x")


@pytest.mark.parametrize("huge", [1 << 31, 1 << 32, (1 << 53) + 1, 1 << 60, 1 << 61, 1 << 62, (1 << 63) - 1])
def test_rounds_are_added_up_and_multiplied_without_wrapping(huge, tmp_path):
    """Two steps of 2^62 rounds, or four of 2^61 and so on, were R/C = 0, and rounds times bandwidth any number."""
    made = allgather()
    for rounds in (np.full(made.step_count, huge), np.array([huge] + [1] * (made.step_count - 1))):
        given = replace(made, step_rounds=rounds)
        exact = Fraction(sum(rounds.tolist()), made.chunks)
        assert given.rounds_per_chunk == exact
        given.save(tmp_path / "a.npz")
        code, said = verdict(tmp_path / "a.npz")
        assert (code == 5 and "rounds" in said) or f"R/C={exact}," in said


def test_a_load_is_seen_however_wide_links_are():
    """Bandwidth times rounds is compared as it is: a narrow link beside one of 2^61 units is overfull all the same."""
    links = (Link(0, 1, Fraction(1)), Link(1, 0, Fraction(1 << 61)))
    machine = Topology("two", 2, links, (Limit("out", (0,), Fraction(1)), Limit("in", (1,), Fraction(1 << 62))))
    chunk, link, zero = np.arange(6), np.repeat([0, 1], 3), np.zeros(6, np.int64)
    enough = CompressedSchedule(machine, "allgather", None, 3, np.array([3]), zero, chunk, link, zero, ((0,), (1,)))
    assert compressed_replay.replay(enough).busiest == 1
    with pytest.raises(VerificationError, match="link 0 -> 1 carries 3 chunks in 2 rounds of 1"):
        compressed_replay.replay(replace(enough, step_rounds=np.array([2])))
    limited = replace(machine, limits=(Limit("both", (0, 1), Fraction(1)), Limit("none", (), Fraction(1))))
    with pytest.raises(VerificationError, match="limit both carries 6 chunks"):
        compressed_replay.replay(replace(enough, topology=limited))


def test_a_limit_is_taken_to_one_of_as_many_links():
    machine = topology("ring:4")
    made = allgather()
    limits = tuple(Limit(f"l{r}", (i,), Fraction(1)) for r, i in enumerate(range(0, 8, 2)))
    doubled = (replace(limits[0], links=(0, 0)), *limits[1:])
    assert made.generators
    with pytest.raises(VerificationError, match="takes a limit to none"):
        compressed_replay.replay(replace(made, topology=replace(machine, limits=doubled)))


def test_symmetries_of_switches_alone_make_no_link_wider():
    """Two switches exchanged: half of what one carries was counted on each, so that an overfull link fitted."""
    links = tuple(Link(a, b, Fraction(1)) for a, b in ((0, 2), (2, 1), (1, 2), (2, 0), (0, 3), (3, 1), (1, 3), (3, 0)))
    machine = Topology("two switches", 2, links, (), ("a", "b"))
    sends = np.array([0, 1, 2, 3], np.int64)
    given = CompressedSchedule(
        machine, "allgather", None, 2, np.array([1]), np.zeros(4, np.int64), sends, np.array([0, 0, 1, 1]),
        np.zeros(4, np.int64), ((0, 1), (2, 3)), ((0, 1, 3, 2),),
    )  # fmt: skip
    with pytest.raises(VerificationError, match="not the identity fixes a rank"):
        compressed_replay.replay(given)
    with pytest.raises(VerificationError, match="carries 2 chunks in 1 rounds of 1"):
        compressed_replay.replay(replace(given, generators=()))
    compressed_replay.replay(replace(given, generators=(), step_rounds=np.array([2])))


@pytest.mark.parametrize("chunks", [1 << 20, 1 << 40, 1 << 61])
@pytest.mark.parametrize("collective", ["allgather", "alltoall", "broadcast", "allreduce", "reduce"])
def test_numbers_alone_fill_no_memory(collective, chunks):
    where = 0 if collective in ("broadcast", "reduce") else None
    for generators in ((), ((1, 2, 3, 0),)):
        given = replace(allgather(), collective=collective, root=where, chunks=chunks, generators=generators)
        with pytest.raises(VerificationError):
            compressed_replay.replay(given)
    many = Topology("many", 1 << 20, (Link(0, 1, Fraction(1)),))
    nothing = np.zeros(0, np.int64)
    with pytest.raises(VerificationError, match="sends, where so many chunks take"):
        compressed_replay.replay(
            CompressedSchedule(many, collective, where, 1, nothing, nothing, nothing, nothing, nothing, ())
        )


def archive(path, header: object = None, **arrays: object) -> None:
    """The archive of an allgather with another header or other arrays; None leaves one out, bytes stand as they are."""
    allgather().save(path)
    with zipfile.ZipFile(path) as file:
        whole = {item.removesuffix(".npy"): file.read(item) for item in file.namelist()}
    if header is not None:
        raw = isinstance(header, np.ndarray)
        arrays["header"] = header if raw else np.frombuffer(json.dumps(header).encode(), np.uint8)
    for name, value in arrays.items():
        if value is None:
            del whole[name]
            continue
        held = io.BytesIO()
        if not isinstance(value, bytes):
            np.save(held, value, allow_pickle=True)  # type: ignore[arg-type]
        whole[name] = value if isinstance(value, bytes) else held.getvalue()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in whole.items():
            file.writestr(f"{name}.npy", data)


def claims(shape: tuple[int, ...], kind: str = "<i8") -> bytes:
    """An array that says how much it holds, and holds nothing."""
    held = io.BytesIO()
    np.lib.format.write_array_header_1_0(held, {"descr": kind, "fortran_order": False, "shape": shape})
    return held.getvalue()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"step": claims((1 << 40,))}, "at most"),
        ({"step": claims((1 << 20,))}, "as many numbers as it says"),
        ({"step": claims((-1,))}, "shape"),
        ({"step": claims((1 << 62, 1 << 62))}, "dimensions"),
        ({"step": claims((0,), "<f8")}, "whole"),
        ({"step": claims((0,), "<u8")}, "whole"),
        ({"step": np.array([{}], object)}, "whole"),
        ({"step": np.array([True])}, "whole"),
        ({"step": np.zeros((2, 2), np.int64)}, "dimensions"),
        ({"step": b"no array"}, "magic"),
        ({"kind": None}, "'kind.npy' is missing"),
        ({"more": np.zeros(1)}, "'more.npy' is not known"),
        ({"header": np.zeros(4, np.int64)}, "no text"),
        ({"header": np.frombuffer(b"[" * 100_000, np.uint8)}, "nested"),
        ({"header": np.frombuffer(b"{", np.uint8)}, "property"),
        ({"header": np.frombuffer(b'{"chunks": 9, "chunks": 1}', np.uint8)}, "'chunks' is given twice"),
    ],
)
def test_an_archive_of_other_arrays_is_refused_before_it_is_unpacked(arrays, words, tmp_path):
    archive(tmp_path / "a.npz", **arrays)
    with pytest.raises(FormatError, match=words):
        schedule_archive.load(tmp_path / "a.npz")
    assert verdict(tmp_path / "a.npz")[0] == 1


def test_a_name_twice_is_refused(tmp_path):
    archive(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("rounds.npy", claims((0,)))
    with pytest.raises(FormatError, match="one name"):
        schedule_archive.load(tmp_path / "a.npz")


MACHINE = {
    "name": "x", "ranks": 4, "switches": [], "connection": "1", "widths": ["1"], "latencies": ["1"], "limits": [],
}  # fmt: skip
HEADER = {"schema": "synth.bulk/1", "collective": "allgather", "root": None, "chunks": 2, "topology": MACHINE}


@pytest.mark.parametrize(
    "change",
    [
        {"extra": 1}, {"chunks": True}, {"chunks": 2.0}, {"chunks": 0}, {"chunks": -2}, {"chunks": "2"}, {"root": 0},
        {"chunks": 1 << 64}, {"collective": "scan"}, {"schema": "synth.bulk/2"}, {"topology": None},
        {"collective": "allreduce"}, {"collective": "broadcast", "root": 4},
        *({"topology": MACHINE | machine} for machine in (
            {"extra": 1}, {"ranks": 0}, {"ranks": 3}, {"ranks": 1 << 40}, {"ranks": True}, {"switches": ["a"]},
            {"ranks": 2, "switches": ["a", "b"]}, {"switches": [0]}, {"connection": "0"}, {"unit": "1"},
            {"widths": ["-1"]}, {"widths": []}, {"widths": [1]}, {"limits": ["a"]}, {"name": "a\nb"},
            {"latencies": ["1/0"]},
        )),
    ],
)  # fmt: skip
def test_an_altered_header_is_refused(change, tmp_path):
    archive(tmp_path / "a.npz", header=HEADER)
    assert verdict(tmp_path / "a.npz")[0] == 0
    archive(tmp_path / "a.npz", header=HEADER | change)
    assert verdict(tmp_path / "a.npz")[0] == 5


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("src", [9] * 8), ("src", [-1] * 8), ("dst", [0] * 7), ("width", [1] * 8), ("sort", [5] * 8),
        ("late", [-1] * 8), ("path_ends", [3, 1]), ("path_ends", []), ("path_links", [0, 99]), ("limit_ends", [0]),
        ("nodes", [0]), ("nodes", [0, 0, 1, -7]), ("nodes", [0, 0, 1, 1 << 40]), ("generators", [[0, 0, 0]]),
        ("generators", [[0, 0, 1, 1]]), ("generators", [[0, 1, 3, 2]]), ("generators", np.zeros((0, 4))),
        ("rounds", [0, 0]), ("rounds", [-1, 5]), ("rounds", []), ("step", [-1]), ("chunk", [1 << 40] * 6),
        ("kind", [1] * 6), ("dst", [0, 0, 2, 0, 3, 1, 0, 2]),
    ],
)  # fmt: skip
def test_altered_arrays_are_refused(name, values, tmp_path):
    archive(tmp_path / "a.npz", **{name: np.array(values, np.int64)})
    assert verdict(tmp_path / "a.npz")[0] == 5


def test_a_schedule_on_fewer_ranks_of_the_same_links_is_that_of_another_machine(tmp_path):
    """Six ranks in a ring, or four and two switches: the links are the same, and who must have what is not."""
    made = frontier(ring(6, switches=2), "allgather").points[-1].schedule
    doc = json.loads(json.dumps(frontier(ring(6), "allgather").to_json({0: "a.npz"}, links=True)))
    rate = made.rounds_per_chunk
    assert rate < Fraction(doc["bound"]["value"])  # what it claims cannot be
    doc["bound"] = {"value": "1/2", "certificate": doc["bound"]["certificate"] | {"inside": [[0, 0]], "limits": []}}
    row = {"steps": made.step_count, "rounds": int(rate * made.chunks), "chunks": made.chunks, "bandwidth": str(rate)}
    doc["points"] = [doc["points"][0] | row | {"gap": str(rate * 2 - 1)}]
    doc["least_steps"] = 1
    made.save(tmp_path / "a.npz")
    code, said = verified(doc, tmp_path)
    assert code == 5 and "its file is for another machine: ranks is 4" in said


@pytest.mark.parametrize("name", ["/etc/passwd", "../a.npz", "", ".", "none.npz", "folder"])
def test_a_file_that_is_not_there_is_named(name, tmp_path):
    (tmp_path / "folder").mkdir()
    large = frontier(topology("ring:4"), "allgather")
    code, said = verified(large.to_json({0: name}), tmp_path)
    if name.startswith("/"):
        assert code == 5 and "points[0].file: " in said
    else:
        assert code == 4 and f"its file {name} is not there" in said


def test_nothing_but_synth_errors(tmp_path):
    """Every byte of an archive's directory and arrays turned: read as it was, or refused."""
    made = allgather()
    made.save(tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(0, len(whole), 150).tolist():
        (tmp_path / "b.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            again = schedule_archive.load(tmp_path / "b.npz")
        except SynthError:
            continue
        assert columns(again) == columns(made)
