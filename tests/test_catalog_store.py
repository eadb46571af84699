"""The catalog's file: what is put comes back, whole or not at all; two writers, kills, strangers' files."""

from __future__ import annotations

import json
import lzma
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
from catalog_jobs import entry
from test_forged_at_scale import changed

import synth
from synth.catalog import store as catalog_store
from synth.catalog.store import Store
from synth.errors import FormatError, SynthError, UsageError
from synth.model.frontier import Frontier, Open


@pytest.fixture(scope="module")
def ring():
    return Frontier.from_json(synth.frontier("ring:4", "allgather", fresh=True).to_json())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "catalog.db"


def opened(frontier):
    """The frontier with an interval left."""
    return replace(frontier, open=(Open(3, Fraction(3, 2), None, "time", {}),), complete=False)


def test_what_is_put_comes_back(ring, path):
    given = entry(ring, **{"max-steps": "7"})
    with Store.open(path, create=True) as store:
        assert store.put(given)
        assert store.get(given.id) == given
        assert store.find(ring.network, ring.collective, {"max-steps": "7"}) is not None
        assert store.find(ring.network, ring.collective) is None
    with Store.open(path) as store:
        (row,) = store.ls("ring:4", "allgather")
        assert (row.id, row.points, row.provenance["seed"]) == (given.id, ((2, "3/2"),), 7)
        assert store.ls("ring:5") == store.ls(collective="scan") == []
        assert [one.error for one in store.verify()] == [None]


def test_only_better_replaces(ring, path):
    worse = replace(opened(ring), points=())
    with Store.open(path, create=True) as store:
        assert store.put(entry(worse)) and store.put(entry(opened(ring)))
        assert not store.put(entry(worse)), "an interval and a point are better than an interval"
        assert store.row(entry(ring).fingerprint).state == "open"
        assert store.put(entry(ring))
        assert not store.put(entry(opened(ring))) and not store.put(entry(ring))
        assert store.get(entry(ring).id).frontier == ring


def test_ids_are_prefixes(ring, path):
    with Store.open(path, create=True) as store:
        for number in range(17):  # of 17 two begin alike
            store.put(entry(ring, n=str(number)))
        for key in store.fingerprints():
            assert store.get(key[:12].upper()).fingerprint == key
        first = [key[0] for key in store.fingerprints()]
        twice = next(digit for digit in first if first.count(digit) > 1)
        for name, says in (
            (twice, "begins more than one entry"),
            ("g", "is no entry"),
            ("0" * 20, "there is no entry"),
        ):
            with pytest.raises(UsageError, match=says):
                store.get(name)


def test_a_database_of_others_is_refused(tmp_path):
    """Other files that are no catalog: test_cli_mistakes."""
    with sqlite3.connect(tmp_path / "other") as base:
        base.execute("CREATE TABLE entries (a)")
    with pytest.raises(SynthError, match="no catalog of this synth"):
        Store.open(tmp_path / "other")


# Puts entries until it is killed, and prints the fingerprint of each.
WRITER = """
import os, signal, sys
import synth
from catalog_jobs import entry
from synth.catalog.store import Store

path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
found = synth.frontier("ring:4", "allgather", fresh=True)
with Store.open(path, create=True) as store:
    for n in range(first, first + count):
        store.put(entry(found, n=str(n)))
    if len(sys.argv) > 4:
        store.base.execute("BEGIN IMMEDIATE")
        store.base.execute("DELETE FROM entries")
        os.kill(os.getpid(), signal.SIGKILL)
"""


def writer(path, *words):
    code = f"import sys; sys.path[:] = {sys.path!r}\n{WRITER}"
    return subprocess.Popen([sys.executable, "-c", code, str(path), *map(str, words)])


def test_two_writers_at_once_and_a_kill_in_a_transaction(path):
    both = [writer(path, 0, 8), writer(path, 4, 8, "kill")]  # four of them are the same
    assert [one.wait() for one in both] == [0, -signal.SIGKILL]
    with Store.open(path) as store:
        assert len(store.fingerprints()) == 12
        assert [one.error for one in store.verify()] == [None] * 12


def test_a_full_disk_is_one_line_and_harms_nothing(ring, path):
    with Store.open(path, create=True) as store:
        store.put(entry(ring))
        store.base.execute(f"PRAGMA max_page_count = {store.base.execute('PRAGMA page_count').fetchone()[0]}")
        with pytest.raises(SynthError, match="full") as caught:
            for number in range(100):
                store.put(entry(ring, n=str(number)))
        assert "\n" not in str(caught.value)
        assert None in [one.error for one in store.verify()]
        store.base.execute("PRAGMA max_page_count = 100000")
        assert store.put(entry(ring, n="later"))


def test_a_document_is_no_larger_than_allowed(monkeypatch):
    monkeypatch.setattr(catalog_store, "MOST_BYTES", 1000)
    assert catalog_store.unpack(lzma.compress(b'{"a": 1}')) == {"a": 1}
    with pytest.raises(FormatError, match="unpacks to more than"):
        catalog_store.unpack(lzma.compress(b" " * 2000))
    with pytest.raises(FormatError, match="cannot be unpacked"):
        catalog_store.unpack(b"this is no document")


def test_damage_names_one_entry_and_harms_no_other(ring, path):
    first, second = entry(ring), entry(ring, n="2")
    with Store.open(path, create=True) as store:
        store.put(first)
        store.put(second)
        body = catalog_store.pack(ring)
        changes = (
            ("frontier", body[:-20]),
            ("frontier", body[:60] + b"\0\0\0\0" + body[64:]),
            ("frontier", None),
            ("row", "{}"),
            ("row", json.dumps(second.to_json())),
            ("row", json.dumps(first.to_json() | {"topology": 7})),
        )
        for column, value in changes:
            old = store.base.execute(f"SELECT {column} FROM entries WHERE fingerprint = ?", (first.fingerprint,))
            (kept,) = old.fetchone()
            change = f"UPDATE entries SET {column} = ? WHERE fingerprint = ?"
            store.base.execute(change, (value, first.fingerprint))
            with pytest.raises(FormatError, match=f"entry {first.id} is damaged") as caught:
                store.get(first.id)
            assert "\n" not in str(caught.value)
            assert store.find(ring.network, ring.collective) is None
            assert store.get(second.id) == second
            assert [one.fingerprint for one in store.verify() if one.error] == [first.fingerprint]
            store.base.execute(change, (kept, first.fingerprint))
        assert not [one for one in store.verify() if one.error]


@pytest.mark.parametrize(
    ("where", "value"), [("points.0.schedule.steps.0.sends", []), ("points.0.bound.value", "2"), ("max_steps", 1)]
)
def test_a_forged_frontier_is_no_answer(ring, path, where, value):
    document = changed(json.loads(json.dumps(ring.to_json())), where, value)
    with Store.open(path, create=True) as store:
        store.put(entry(ring))
        store.base.execute("UPDATE entries SET frontier = ?", (lzma.compress(json.dumps(document).encode()),))
        assert store.find(ring.network, ring.collective) is None
        assert [bool(one.error) for one in store.verify()] == [True]


def test_a_row_that_lies_is_found_out(ring, path):
    good = entry(ring).to_json()
    with Store.open(path, create=True) as store:
        store.put(entry(ring))
        for change in ({"state": "open"}, {"ranks": 5}, {"points": [[2, "1"]]}, {"options": {"n": "1"}}):
            store.base.execute("UPDATE entries SET row = ?", (json.dumps(good | change),))
            (checked,) = store.verify()
            assert "its row has another" in checked.error
        store.base.execute("UPDATE entries SET row = ?, invariant = 'x'", (json.dumps(good),))
        assert "another invariant" in next(store.verify()).error
