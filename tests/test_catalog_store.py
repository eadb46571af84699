"""The catalog's store: what is put comes back, whole or not at all; two writers, kills, full disks, strangers'
files."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import synth
from synth import api
from synth.catalog.entry import DONE, FAILED, INFEASIBLE, OPEN, Entry, Provenance, fingerprint, scale_fingerprint
from synth.catalog.store.blobs import Blob, pack, unpack
from synth.catalog.store.migrations import VERSION
from synth.catalog.store.rows import EntryRow
from synth.catalog.store.store import Store
from synth.errors import FormatError, SynthError, UsageError
from synth.model.frontier import Frontier
from synth.model.scale_frontier import ScaleFrontier

OLD = Path(__file__).parent / "fixtures" / "catalog-v1.sql"


@pytest.fixture(scope="session")
def ring() -> Frontier:
    found = synth.frontier("ring:4", "allgather")
    assert isinstance(found, Frontier) and found.complete
    return found


@pytest.fixture(scope="session")
def large() -> ScaleFrontier:
    found = synth.frontier("ring:5", "allgather", engine="flow")
    assert isinstance(found, ScaleFrontier) and found.points
    return found


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "catalog.db"


def entry(found: Frontier, state: str = DONE, **options: str) -> Entry:
    chosen = tuple(sorted(options.items()))
    made = Provenance(
        (("synth", "0.1.0"), ("z3", "4.13")), 7, "cadical", "step", "x86_64", "2026-11-21T14:00:00Z", 30.0, 1 << 30
    )
    key = fingerprint(found.network, found.collective, chosen)
    return Entry(
        key,
        found.network.name,
        found.collective.name,
        found.network.ranks,
        chosen,
        state,
        found,
        seconds=1.5,
        provenance=made,
    )


def large_entry(found: ScaleFrontier) -> Entry:
    key = scale_fingerprint(found.topology, found.collective_name, found.root)
    return Entry(key, found.topology.name, found.collective_name, found.topology.ranks, (), DONE, found)


def rows(store: Store) -> list[EntryRow]:
    return [row for row in store.ls() if isinstance(row, EntryRow)]


# ---------------------------------------------------------------- in and out


def test_what_is_put_comes_back(ring, path) -> None:
    given = entry(ring, seed="7")
    with Store.open(path, create=True) as store:
        assert store.put(given) is True
        got = store.get(given.id)
        assert isinstance(got.frontier, Frontier)
        assert got.frontier.to_json() == ring.to_json()
        assert replace(got, frontier=None) == replace(given, frontier=None)
        assert (store.state_of(given.fingerprint), store.state_of("0" * 64), len(store)) == (DONE, None, 1)
        assert store.fingerprints() == [given.fingerprint]
        (row,) = rows(store)
        assert (row.id, row.state, row.points, row.steps, row.complete) == (given.id, DONE, 1, (2, 2), True)
        assert row.options == (("seed", "7"),)


def test_a_frontier_by_flow_methods_comes_back_with_its_schedules(large, path) -> None:
    given = large_entry(large)
    with Store.open(path, create=True) as store:
        store.put(given)
        got = store.get(given.id).frontier
    assert isinstance(got, ScaleFrontier)
    assert got.topology == large.topology
    assert got.to_json() == large.to_json()
    assert [p.schedule.digest() for p in got.points] == [p.schedule.digest() for p in large.points]


def test_a_topology_that_no_file_can_hold_comes_with_its_schedules(large, path) -> None:
    twice = replace(
        large.topology, links=(*large.topology.links, large.topology.links[0])
    )  # parallel links, which files add up

    def of(machine):
        return replace(
            large,
            topology=machine,
            points=tuple(replace(p, source=lambda p=p: replace(p.schedule, topology=machine)) for p in large.points),
        )

    odd = of(twice)
    with Store.open(path, create=True) as store:
        store.put(large_entry(odd))
        got = store.get(large_entry(odd).id).frontier
        assert isinstance(got, ScaleFrontier)
        assert list(got.topology.links) == list(twice.links)
        unnamed = replace(twice, name="a\nb", unit=twice.unit_bandwidth() / 2)  # a name that no document may have
        for wrong in (replace(odd, points=(), topology=unnamed), of(unnamed)):
            with pytest.raises(SynthError, match="can be kept"):
                store.put(large_entry(wrong))


def test_putting_twice_changes_nothing_and_only_better_replaces(ring, path) -> None:
    done = entry(ring)
    failed = replace(done, state=FAILED, frontier=None, reason="crashed twice")
    open_ = replace(done, state=OPEN, frontier=replace(ring, points=(), complete=False))
    with Store.open(path, create=True) as store:
        assert [store.put(x) for x in (failed, failed, open_, failed)] == [True, True, True, False]
        assert store.get(done.id).state == OPEN
        assert rows(store)[0].points == 0
        assert [store.put(x) for x in (done, done, open_, failed)] == [True, False, False, False]
        assert (len(store), rows(store)[0].points) == (1, 1)
        kept = store.get(done.id)
        assert kept.frontier is not None and kept.frontier.to_json() == ring.to_json()


def test_all_of_several_or_none(ring, path) -> None:
    good, bad = entry(ring), replace(entry(ring, n="1"), frontier=None)
    with Store.open(path, create=True) as store:
        with pytest.raises(SynthError, match="without a frontier"):
            store.put_all([good, bad])
        with pytest.raises(SynthError, match="state 'finished'"):
            store.put(replace(good, state="finished"))
        assert len(store) == 0


def test_ids_are_prefixes(ring, path) -> None:
    with Store.open(path, create=True) as store:
        store.put_all([entry(ring, n=str(i)) for i in range(40)])
        key = store.fingerprints()[0]
        assert store.get(key[:12].upper()).fingerprint == key
        first = {k[0] for k in store.fingerprints()}
        twice = next(c for c in first if sum(k[0] == c for k in store.fingerprints()) > 1)
        with pytest.raises(UsageError, match="more than one entry"):
            store.get(twice)
        for wrong, why in (
            ("xyz", "is no entry"),
            ("", "is no entry"),
            ("0" * 64, "there is no entry"),
            ("' OR 1=1", "is no entry"),
        ):
            with pytest.raises(UsageError, match=why):
                store.get(wrong)


def test_lookup_takes_the_fastest_at_the_size(path) -> None:
    found = synth.frontier("line:3", "broadcast", max_steps=5)
    assert isinstance(found, Frontier) and len(found.points) > 2
    with Store.open(path, create=True) as store:
        store.put(entry(found))
        for size in (1, 1 << 20, 1 << 30):
            choices = store.lookup("line:3", "broadcast", size)
            best = found.best(size)
            assert (choices[0].steps, choices[0].rounds) == (best.steps, best.rounds)
            assert choices[0].seconds == pytest.approx(found.seconds_at(best, size))
            assert len(choices) == len(found.points)
        assert store.lookup("line:3", "broadcast", 1, roots=[0]) and not store.lookup(
            "line:3", "broadcast", 1, roots=[1]
        )
        assert not store.lookup("line:3", "allgather") and not store.lookup("line:4", "broadcast")
        assert [c.steps for c in store.lookup("line:3", "broadcast", ranks=3)] == [p.steps for p in found.points]
        assert not store.lookup("line:3", "broadcast", ranks=4)
        plan = "".join(row[3] for row in store.base.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM entries WHERE topology = 'a' AND collective = 'b'"))  # fmt: skip
        assert "USING INDEX entries_problem" in plan


# ---------------------------------------------------------------- files that are none, or of another version


def test_files_that_are_no_catalog_are_refused(tmp_path) -> None:
    other = tmp_path / "other.db"
    base = sqlite3.connect(other)
    base.execute("CREATE TABLE t (x)")
    base.close()
    (tmp_path / "text.db").write_text("not a database, but long enough to be looked at: " * 99)
    (tmp_path / "empty.db").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    expected = {
        "other.db": "an SQLite database, but no catalog",
        "text.db": "not an SQLite database",
        "empty.db": "empty database, no catalog",
        "folder": "a folder or a device",
        "missing.db": "there is no catalog",
    }
    for name, why in expected.items():
        with pytest.raises(SynthError, match=why) as caught:
            Store.open(tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(SynthError, match="its folder does not exist"):
        Store.open(tmp_path / "nowhere" / "catalog.db", create=True)
    assert other.read_bytes()[:15] == b"SQLite format 3"
    with Store.open(tmp_path / "empty.db", create=True) as store:
        assert len(store) == 0


def test_a_catalog_that_may_only_be_read_is_read(ring, path, monkeypatch) -> None:
    """Of a folder where nothing may be written: SQLite would want files of its own there."""
    strange = path.with_name("a ?#% catalog.db")
    with Store.open(strange, create=True) as store:
        store.put(entry(ring))
    before = sorted(path.parent.iterdir())
    monkeypatch.setattr("os.access", lambda *_: False)
    with Store.open(strange) as store:
        assert len(rows(store)) == 1 and store.get(entry(ring).id).frontier is not None
        assert sorted(path.parent.iterdir()) == before
        with pytest.raises(SynthError, match="cannot be written"):
            store.put(entry(ring, n="1"))
    old(path)
    with pytest.raises(SynthError, match="of version 1 and read-only"):
        Store.open(path)


def test_a_newer_version_is_refused_and_left_alone(ring, path) -> None:
    with Store.open(path, create=True) as store:
        store.put(entry(ring))
        store.base.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()
    for create in (False, True):
        with pytest.raises(FormatError, match=f"version {VERSION + 1}, this synth reads up to {VERSION}; update synth"):
            Store.open(path, create=create)
    assert path.read_bytes() == before


def old(path: Path) -> None:
    base = sqlite3.connect(path)
    base.executescript(OLD.read_text())
    base.close()


def test_an_older_version_is_brought_up_whole(ring, path) -> None:
    """The fixture was written by the code of version 1."""
    old(path)
    with Store.open(path) as store:
        assert store.base.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert [(row.topology, row.collective, row.points) for row in rows(store)] == [
            ("line:3", "broadcast", 7), ("ring:4", "allgather", 1),
        ]  # fmt: skip
        assert [found.error for found in api.catalog.verify(store)] == [None] * 2
        assert store.find(ring.network, ring.collective) is not None
        moved = tuple(
            r._replace(src=(r.src + 1) % 3, dst=(r.dst + 1) % 3) for r in api.topology("line:3").network().routes
        )
        turned = replace(api.topology("line:3").network(), name="turned", routes=moved)
        assert store.find(turned, api.collective("broadcast", 3, [1])) is not None, "its invariants were filled in"


def test_a_migration_that_fails_leaves_the_old_version(path, monkeypatch) -> None:
    from synth.catalog.store import migrations, sqlite_file

    old(path)
    broken = (*migrations.MIGRATIONS[:1], ("CREATE TABLE aliases (id)", "CREATE TABLE nonsense ("))
    monkeypatch.setattr(sqlite_file, "MIGRATIONS", broken)
    with pytest.raises(SynthError):
        Store.open(path)
    base = sqlite3.connect(path)
    assert base.execute("PRAGMA user_version").fetchone() == (1,)
    assert base.execute("SELECT count(*) FROM sqlite_master WHERE name = 'aliases'").fetchone() == (0,)
    base.close()
    monkeypatch.undo()
    with Store.open(path) as store:
        assert len(store) == 2


# ---------------------------------------------------------------- several processes, kills, full disks

WRITER = """
import os, signal, sys
from dataclasses import replace
from synth.catalog.entry import fingerprint
from synth.catalog.store.store import Store
path, first, count, die = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
with Store.open(path, create=True) as store:
    base = store.get(store.fingerprints()[0])
    net, task = base.frontier.network, base.frontier.collective
    for i in range(first, first + count):
        options = (("n", str(i)),)
        made = replace(base, fingerprint=fingerprint(net, task, options), options=options)
        if die == "inside":
            from synth.catalog.store.rows import packed
            store.base.execute("PRAGMA cache_spill = 1")
            store.base.execute("BEGIN IMMEDIATE")
            for k in range(300):
                row = packed(made)
                store._write(type(row)({**row.columns, "fingerprint": f"{k:064x}"}, row.points, row.blobs, ()), None)
            os.kill(os.getpid(), signal.SIGKILL)
        store.put(made)
        print(made.fingerprint, flush=True)
"""


def writer(path: Path, first: int, count: int, die: str = "no") -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(first), str(count), die], stdout=subprocess.PIPE, text=True
    )


def test_two_writers_at_once(ring, path) -> None:
    with Store.open(path, create=True) as store:
        store.put(entry(ring))
        both = [writer(path, 0, 30), writer(path, 20, 30)]  # ten of them are the same
        reported = [set(one.communicate()[0].split()) for one in both]
        assert [one.returncode for one in both] == [0, 0]
        assert len(store) == 51
        assert reported[0] | reported[1] | {entry(ring).fingerprint} == set(store.fingerprints())
        assert len(rows(store)) == 51


def test_a_killed_writer_loses_at_most_its_open_entry(ring, path) -> None:
    with Store.open(path, create=True) as store:
        store.put(entry(ring))
    reported: set[str] = set()
    for turn, after in enumerate((1, 4)):
        one = writer(path, 1000 * turn, 1000)
        assert one.stdout is not None
        reported |= {one.stdout.readline().strip() for _ in range(after)}
        one.send_signal(signal.SIGKILL)
        reported |= {line.strip() for line in one.stdout.read().splitlines() if len(line.strip()) == 64}
        one.wait()
        with Store.open(path) as store:
            kept = set(store.fingerprints()) - {entry(ring).fingerprint}
            assert reported <= kept
            assert len(kept - reported) <= turn + 1, "the one that was put but not reported yet"
            reported |= kept
            assert all(isinstance(row, EntryRow) for row in store.ls())
            assert store.base.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_kill_in_the_middle_of_a_transaction_undoes_it(ring, path) -> None:
    with Store.open(path, create=True) as store:
        store.put(entry(ring))
    one = writer(path, 0, 1, "inside")
    one.communicate()
    assert one.returncode == -signal.SIGKILL
    with Store.open(path) as store:
        assert store.fingerprints() == [entry(ring).fingerprint]
        assert store.base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert store.put(entry(ring, n="1"))


def test_a_full_disk_is_one_line_and_harms_nothing(ring, path) -> None:
    with Store.open(path, create=True) as store:
        store.put(entry(ring))
        pages = store.base.execute("PRAGMA page_count").fetchone()[0]
        store.base.execute(f"PRAGMA max_page_count = {pages + 4}")
        kept = 1
        with pytest.raises(SynthError, match="no space left to write; the open entry was not kept") as caught:
            for i in range(100):
                store.put(entry(ring, n=str(i)))
                kept += 1
        assert "\n" not in str(caught.value)
        assert len(store) == kept == len(rows(store))
        assert [found.error for found in api.catalog.verify(store)] == [None] * kept
        store.base.execute("PRAGMA max_page_count = 1000000")
        assert store.put(entry(ring, n="later"))


def test_who_waits_too_long_learns_who_is_in_the_way(ring, path) -> None:
    with Store.open(path, create=True) as store, Store.open(path) as other:
        store.base.execute("BEGIN IMMEDIATE")
        other.base.execute("PRAGMA busy_timeout = 1")
        with pytest.raises(SynthError, match="another process has been writing"):
            other.put(entry(ring))
        assert rows(other) == []
        store.base.execute("ROLLBACK")
        assert other.put(entry(ring))


# ---------------------------------------------------------------- what cannot be trusted


def test_a_document_is_no_larger_than_it_says() -> None:
    good = pack({"a": [1] * 1000})
    assert unpack(good) == {"a": [1] * 1000}
    flipped = bytes([*good.body[:-1], good.body[-1] ^ 1])
    liar = good._replace(size=10)
    huge = good._replace(size=1 << 40)
    for bad, why in (
        (good._replace(body=flipped), "checksum"), (liar, "does not unpack to"), (huge, "at most"),
        (good._replace(size=1 << 20), "unpack to"), (Blob(good.sum, good.size, "text"), "no compressed document"),
        (pack([1]), "holds a list"),
    ):  # fmt: skip
        with pytest.raises(FormatError, match=why):
            unpack(bad)


def test_a_damaged_entry_is_named_and_no_other_is_harmed(ring, large, path) -> None:
    keys = [entry(ring, n=str(i)).fingerprint for i in range(5)]
    with Store.open(path, create=True) as store:
        store.put_all([entry(ring, n=str(i)) for i in range(5)] + [large_entry(large)])
        change = store.base.execute
        change("UPDATE blobs SET body = zeroblob(length(body)) WHERE entry = 1")
        change("UPDATE blobs SET body = substr(body, 1, 20) WHERE entry = 2")
        change("DELETE FROM blobs WHERE entry = 3")
        change("UPDATE entries SET state = 'perhaps' WHERE id = 4")
        listed = list(store.ls())
        said = {str(x)[6:18]: str(x) for x in listed if isinstance(x, FormatError)}
        assert set(said) == {key[:12] for key in keys[:4]}
        assert all("is damaged: its " in text and "\n" not in text for text in said.values())
        assert {row.fingerprint for row in listed if isinstance(row, EntryRow)} == {
            keys[4],
            large_entry(large).fingerprint,
        }
        for key in keys[:3]:
            with pytest.raises(FormatError, match=f"entry {key[:12]} is damaged: its frontier"):
                store.get(key)
        assert store.get(keys[4]).frontier is not None
        checked = {found.fingerprint: found.error for found in api.catalog.verify(store)}
        assert [checked[key] is None for key in keys] == [False, False, False, False, True]
        assert "checksum" in (checked[keys[0]] or "")


def test_bytes_that_are_no_text_harm_one_entry(ring, path) -> None:
    """SQLite keeps what it is given: a document, a name and a sum that became texts of no encoding."""
    keys = [entry(ring, n=str(i)).fingerprint for i in range(4)]
    with Store.open(path, create=True) as store:
        store.put_all([entry(ring, n=str(i)) for i in range(4)])
        change = store.base.execute
        change("UPDATE blobs SET body = CAST(x'78DAFF00FE1B5B' || substr(body, 8) AS TEXT) WHERE entry = 1")
        change("UPDATE entries SET options = CAST(x'7BFF7D' AS TEXT) WHERE id = 2")
        change("UPDATE blobs SET sum = CAST(x'FFFE' AS TEXT) WHERE entry = 3")
        bad = [x for x in store.ls() if isinstance(x, FormatError)]
        assert len(bad) == 3 and all("is damaged" in str(x) and str(x).isprintable() for x in bad)
        for key in keys[:3]:
            with pytest.raises(FormatError, match=f"entry {key[:12]} is damaged"):
                store.get(key)
        assert [one.fingerprint for one in api.catalog.verify(store) if one.error] == keys[:3]
        assert [(waste.table, len(waste.rows)) for waste in api.catalog.gc(store)[0]] == [("entries", 3)]
        assert store.fingerprints() == keys[3:] and store.get(keys[3]).frontier is not None


def test_a_catalog_that_lies_is_found_out(ring, large, path) -> None:
    """Whoever writes a catalog can make checksums that fit; what it says must still hold."""
    lies = {
        "points": "UPDATE points SET rate = 1.0 WHERE entry = {}",
        "complete": "UPDATE entries SET complete = 0 WHERE id = {}",
        "unit": "UPDATE entries SET unit = 99.0 WHERE id = {}",
        "fingerprint": "UPDATE entries SET fingerprint = printf('%064d', {0}) WHERE id = {0}",
        "infeasible": "UPDATE entries SET state = 'infeasible' WHERE id = {}",
    }
    with Store.open(path, create=True) as store:
        store.put_all([entry(ring, n=name) for name in lies])
        for number, text in enumerate(lies.values(), 1):
            store.base.execute(text.format(number))
        better = ring.to_json()
        better["points"][0]["schedule"]["steps"][0]["sends"].pop()
        frontier = Frontier.from_json(better)
        store.put(entry(frontier, n="send"))
        claim = replace(ring, points=(), complete=True)
        store.put(entry(claim, n="claim"))
        store.put(large_entry(replace(large, bound=2 * large.bound)))
        proof = {"kind": "unreachable", "problem": "", "pair": [0, 0], "closed": []}
        store.put(
            replace(
                entry(replace(ring, points=(), complete=False, bounds=()), n="proof"),
                state=INFEASIBLE,
                certificate=proof,
            )
        )
        found = list(api.catalog.verify(store))
        assert len(found) == 9
        assert all(one.error for one in found), [one.fingerprint for one in found if not one.error]


def test_an_infeasible_entry_carries_its_proof(path) -> None:
    from synth.errors import InfeasibleError

    one_way = replace(api.topology("line:3"), links=tuple(k for k in api.topology("line:3").links if k.src < k.dst))
    with pytest.raises(InfeasibleError) as caught:
        synth.frontier(one_way, "allgather")
    network, task = one_way.network(), api.collective("allgather", 3)
    key = fingerprint(network, task)
    made = Entry(
        key, network.name, "allgather", 3, (), INFEASIBLE, Frontier(network, task, ()), caught.value.certificate or {}
    )
    with Store.open(path, create=True) as store:
        store.put(made)
        (found,) = api.catalog.verify(store)
        assert found.error is None and "infeasible: unreachable certificate checked" in found.lines
        assert store.get(key).certificate == made.certificate


@pytest.mark.parametrize(
    ("most", "error"), [("2", None), ("3", "certificate 'distance'"), (None, "certificate 'distance'")]
)
def test_too_few_steps_are_infeasible_where_so_many_are_needed(path, most, error) -> None:
    from synth.errors import InfeasibleError

    topology, task = api.topology("line:4"), api.collective("allgather", 4)
    with pytest.raises(InfeasibleError) as caught:
        synth.frontier(topology, "allgather", max_steps=2)
    network, options = topology.network(), () if most is None else (("max-steps", most),)
    key = fingerprint(network, task, options)
    made = Entry(
        key,
        network.name,
        "allgather",
        4,
        options,
        INFEASIBLE,
        Frontier(network, task, ()),
        caught.value.certificate or {},
    )
    with Store.open(path, create=True) as store:
        store.put(made)
        (found,) = api.catalog.verify(store)
        assert found.error is None if error is None else error in str(found.error)


def test_bytes_changed_anywhere_are_one_line_or_nothing(ring, large, path) -> None:
    """Whatever a disk or a stranger does to the file: an answer, or an error of one line; nothing else comes out."""
    import random

    with Store.open(path, create=True) as store:
        store.put_all([entry(ring, n=str(i)) for i in range(8)] + [large_entry(large)])
    good, refusals, answers = path.read_bytes(), 0, 0
    for seed in range(40):
        rng = random.Random(seed)
        data = bytearray(good[: rng.randrange(len(good))] if seed % 10 == 9 else good)
        for _ in range(rng.choice((1, 3, 30))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        bad = path.with_name(f"{seed}.db")
        bad.write_bytes(data)
        for use in (
            lambda s: list(s.ls()),
            lambda s: [s.get(key) for key in s.fingerprints()],
            lambda s: list(api.catalog.verify(s)),
            lambda s: s.lookup("ring:4", "allgather", 1),
            lambda s: s.find(ring.network, ring.collective, [("n", "3")]),
            lambda s: s.put(entry(ring, n="new")),
            lambda s: api.catalog.gc(s),
        ):
            try:
                with Store.open(bad) as store:
                    use(store)
                answers += 1
            except SynthError as error:
                assert "\n" not in str(error)
                refusals += 1
    assert answers > 40 and refusals > 40
