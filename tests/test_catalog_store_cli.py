"""`synth catalog`: what users see of a catalog, programs and measurements in it, and what `gc` takes away."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_catalog_store import entry, large, large_entry, ring, rows  # noqa: F401

import synth as package
from synth import api
from synth.api import catalog
from synth.catalog.entry import FAILED
from synth.catalog.store import programs as store_programs
from synth.catalog.store.store import Store
from synth.cli import root
from synth.errors import FormatError, SynthError
from synth.model.frontier import Frontier


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("SYNTH_") and name != "SYNTH_CACHE"]:
        monkeypatch.delenv(name)


@pytest.fixture
def kept(ring, large, tmp_path) -> Path:  # noqa: F811
    """Two entries, one by each kind of engine, under the default name."""
    with catalog.open(tmp_path / "catalog.db", create=True) as store:
        store.put_all([entry(ring), large_entry(large)])
    return tmp_path / "catalog.db"


def synth(words: str, code: int = 0):
    outcome = CliRunner().invoke(root, ["catalog", *words.split()])
    assert outcome.exit_code == code, (outcome.exit_code, outcome.stdout, outcome.stderr, outcome.exception)
    return outcome


def refused(words: str, code: int) -> str:
    outcome = synth(words, code)
    assert outcome.stdout == ""
    (line,) = outcome.stderr.splitlines()
    return line.removeprefix("synth: error: ")


@pytest.mark.parametrize("command", ["ls", "show", "export", "verify", "gc", "import"])
def test_help_has_an_example(command) -> None:
    text = synth(f"{command} -h").stdout
    assert "Example" in text and f"synth catalog {command}" in text


def test_ls(kept, ring, large) -> None:  # noqa: F811
    lines = synth("ls").stdout.splitlines()
    assert [line.split()[:5] for line in lines[3:5]] == [
        [entry(ring).id, "ring:4", "allgather", "4", "done"],
        [large_entry(large).id, "ring:5", "allgather", "5", "done"],
    ]
    assert lines[-1] == "2 entries, 2 done"
    assert len(synth("ls --topo ring:4 --coll AG --state done --ranks 4").stdout.splitlines()) == len(lines) - 1
    assert synth("ls --topo ring:6").stdout.splitlines()[-1] == "no entries"
    (row,) = json.loads(synth("ls --topo ring:4 --format json").stdout)
    assert (row["id"], row["steps"], row["complete"], row["engine"]) == (entry(ring).id, [2, 2], True, "exact")
    synth("ls -o list.json")
    assert len(json.loads(Path("list.json").read_text())) == 2


def test_ls_of_one_size(kept, ring) -> None:  # noqa: F811
    lines = synth("ls --topo ring:4 --coll allgather --size 1MB").stdout.splitlines()
    assert lines[3].split()[:7] == [entry(ring).id, "1", "2", "3", "2", "3/2", "optimal"]
    assert float(lines[3].split()[7]) == pytest.approx(1e6 * ring.seconds_at(ring.points[0], 1 << 20), abs=0.01)
    assert "add --topo NAME and --coll NAME" in refused("ls --size 1MB", 2)
    assert "no point of this machine" in synth("ls --topo ring:4 --coll scan --size 1MB").stdout


def test_a_machine_is_found_under_any_of_its_names(tmp_path) -> None:
    found = package.frontier("dgx1", "allgather", max_steps=2)
    assert isinstance(found, Frontier)
    with catalog.open("catalog.db", create=True) as store:
        store.put(entry(found))
    assert synth("ls --topo DGX1").stdout.splitlines()[-1] == "1 entry, 1 done"


def test_show(kept, ring, large) -> None:  # noqa: F811
    text = synth(f"show {entry(ring).id[:6]}").stdout
    assert "allgather on ring:4: 4 ranks" in text and "complete: no schedule in this model" in text
    assert f"entry {entry(ring).id}: done; options: none" in text
    assert "found in 1.5 s by solver cadical, encoding step, seed 7, on x86_64, 2026-11-21T14:00:00Z" in text
    assert "versions: synth 0.1.0, z3 4.13" in text
    assert "above bound" in synth(f"show {large_entry(large).id}").stdout
    doc = json.loads(synth(f"show {entry(ring).id} --format json").stdout)
    assert doc["schema"] == "synth.entry/1" and doc["frontier"] == ring.to_json()


def test_export(kept, ring, large) -> None:  # noqa: F811
    own, other = entry(ring).id, large_entry(large).id
    synth(f"export {own} --to frontier -o f.json")
    assert json.loads(Path("f.json").read_text()) == ring.to_json()
    assert api.verify("f.json")
    synth(f"export {other} --to schedule --point 1 -o s.json")
    assert api.verify("s.json")
    made = synth(f"export {own} --to msccl-xml --point 1 --protocol LL").stdout
    assert made == api.export_program(ring, "msccl-xml", point=1, protocol="LL").files[0][1]
    assert "<algo" in synth(f"export {other}").stdout
    assert "has points 1 to 1" in refused(f"export {own} --point 9", 2)
    with catalog.open(kept) as store:
        assert catalog.export(store.get(own), point=1).files == api.export_program(ring, point=1).files
        assert catalog.export(store.get(other), "msccl-xml", point=1).files


def test_verify(kept, ring) -> None:  # noqa: F811
    assert synth("verify").stdout == "catalog.db: 2 entries checked, all verified\n"
    text = synth("verify -v").stdout
    assert (
        "S=2: R/C 3/2 with C=2, 24 sends replayed, optimal for any C" in text
        and "no allgather on ring:5 takes fewer" in text
    )
    with Store.open(kept) as store:
        store.put_all([entry(ring, n=str(i)) for i in range(3)])
        store.base.execute("UPDATE blobs SET body = zeroblob(9) WHERE entry = 3 OR entry = 5")
    outcome = synth("verify", code=5)
    first, second, last = outcome.stdout.splitlines()
    assert first.startswith(f"{entry(ring, n='0').id} allgather on ring:4: is damaged: its frontier")
    assert second.startswith(entry(ring, n="2").id)
    assert last == "catalog.db: 5 entries checked, 2 bad"


def test_damage_is_one_line_everywhere(kept, ring) -> None:  # noqa: F811
    with Store.open(kept) as store:
        store.base.execute("UPDATE blobs SET body = zeroblob(length(body)) WHERE entry = 1")
    outcome = synth("ls", code=1)
    assert outcome.stdout.splitlines()[-1] == "1 entry, 1 done"
    (line,) = outcome.stderr.splitlines()
    assert line.startswith(f"synth: entry {entry(ring).id} is damaged: its frontier its checksum does not fit")
    for words in (f"show {entry(ring).id}", f"export {entry(ring).id}"):
        assert f"entry {entry(ring).id} is damaged" in refused(words, 1)


def test_which_catalog(kept, ring, monkeypatch, tmp_path) -> None:  # noqa: F811
    with catalog.open(tmp_path / "other.db", create=True) as store:
        store.put(entry(ring))
    assert synth("ls").stdout.endswith("2 entries, 2 done\n")
    assert synth("ls --db other.db").stdout.endswith("1 entry, 1 done\n")
    (tmp_path / "synth.toml").write_text('[catalog.ls]\ndb = "other.db"\n')
    assert synth("ls").stdout.endswith("1 entry, 1 done\n")
    monkeypatch.setenv("SYNTH_CATALOG", "nowhere.db")
    assert refused("ls", 1).startswith("there is no catalog nowhere.db")
    assert synth("ls --db catalog.db").stdout.endswith("2 entries, 2 done\n")
    (tmp_path / "text.db").write_text("text " * 999)
    assert "is no catalog: not an SQLite database" in refused("verify --db text.db", 1)


# ---------------------------------------------------------------- programs and measurements


@pytest.fixture
def timed(ring) -> dict:  # noqa: F811
    """Modelled times of the one point, two copies side by side, beside a ring that is in no catalog."""
    return api.bench(ring, [1 << 10, 1 << 20], baselines=["ring"], protocol="LL", instances=2).to_json()


def test_measurements_come_to_their_entry(kept, ring, timed, tmp_path) -> None:  # noqa: F811
    Path("m.json").write_text(json.dumps(timed))
    own = entry(ring).id
    assert synth("import m.json").stdout == f"m.json: attached to {own}, 1 program\n"
    assert synth("import m.json").stdout == f"m.json: already at {own}, 1 program\n"
    with catalog.open(kept) as store:
        assert store.measurements(own) == [timed]
        assert store.get(own).measurements == (timed,)
        (program,) = store.programs(own)
        assert (program.point, program.protocol, program.instances) == (1, "LL", 2)
        assert program.fingerprint in [row["fingerprint"] for row in timed["programs"]]
        lowered = api.lower(ring.points[0].schedule, protocol="LL", instances=2)
        assert store.program(program.fingerprint) == lowered
    assert "programs kept: point 1 LL x 2" in synth(f"show {own}").stdout
    assert "of point 1: " in synth("verify -v").stdout


def test_measurements_of_a_machine_numbered_otherwise(kept, ring, tmp_path) -> None:  # noqa: F811
    turn = {0: 2, 1: 0, 2: 3, 3: 1}
    net = ring.network
    other = replace(net, name="mine", routes=tuple(r._replace(src=turn[r.src], dst=turn[r.dst]) for r in net.routes))
    with catalog.open(kept) as store:
        found = store.find(other, ring.collective, remember=True)
        assert found is not None and isinstance(found[0].frontier, Frontier)
        doc = api.bench(found[0].frontier, [1 << 10]).to_json()
        (attached,) = catalog.measured(store, doc)
        assert attached == (entry(ring).fingerprint, 1, True)
        assert all(found.error is None for found in catalog.verify(store))


def test_measurements_of_nothing_here(kept, timed, tmp_path) -> None:
    found = package.frontier("line:3", "broadcast", max_steps=2)
    assert isinstance(found, Frontier)
    Path("m.json").write_text(json.dumps(api.bench(found, [1 << 10]).to_json()))
    assert refused("import m.json", 1).startswith(
        "m.json: none of its 1 programs (broadcast on line:3) was lowered from a point of"
    )
    with catalog.open(kept) as store:
        bad = [
            {}, timed | {"schema": "synth.frontier/1"}, timed | {"programs": []}, timed | {"rows": [{"program": 7}]},
            timed | {"ranks": "4"}, timed | {"programs": [{"fingerprint": 1}]}, timed | {"topology": {}},
            timed | {"programs": [timed["programs"][0] | {"steps": [1]}]},
        ]  # fmt: skip
        for doc in bad:
            with pytest.raises(FormatError):
                catalog.measured(store, doc)
        huge = timed | {
            "programs": [row | {"chunks": row["chunks"] * 10**9, "fingerprint": "0"} for row in timed["programs"]]
        }
        with pytest.raises(SynthError, match="none of its"):
            catalog.measured(store, huge)
    Path("m.json").write_text("[1]")
    assert refused("import m.json", 1) == "m.json: expected measurements, found a list"
    assert refused("import missing.json", 1).startswith("missing.json: does not exist")


# ---------------------------------------------------------------- gc


def test_gc(kept, ring, large, timed) -> None:  # noqa: F811
    with catalog.open(kept) as store:
        catalog.measured(store, timed)
        store.put(replace(entry(ring, n="1"), state=FAILED, frontier=None, reason="crashed twice"))
        store.put_all([entry(ring, n=str(i)) for i in range(2, 60)])
        change = store.base.execute
        change("UPDATE blobs SET body = zeroblob(length(body)) WHERE entry = 4")
        change("PRAGMA foreign_keys = OFF")
        change("DELETE FROM entries WHERE id > 5")
        change("PRAGMA foreign_keys = ON")
        lost = timed | {"programs": [timed["programs"][1]], "rows": []}
        store.attach(1, "host", catalog_blob(lost), ())
        program = api.lower(ring.points[0].schedule)
        absent = store_programs.StoredProgram(store_programs.fingerprint(program), 7, "synth", program.protocol, 1)
        store_programs.write(store.base, store.row_of(entry(ring).id), program, absent)
    size = kept.stat().st_size
    dry = synth("gc --dry-run").stdout.splitlines()
    assert kept.stat().st_size == size
    said = [line.removeprefix("would remove ").partition(":")[0] for line in dry]
    assert said == ["1 entry", "1 entry", "56 points", "56 documents", "1 program", "1 measurement"]
    real = synth("gc").stdout.splitlines()
    assert [line.removeprefix("removed ") for line in real[:-1]] == [line.removeprefix("would remove ") for line in dry]
    assert real[-1].endswith("bytes smaller") and kept.stat().st_size < size
    assert synth("gc").stdout == "nothing to remove\n"
    assert synth("verify").stdout == "catalog.db: 3 entries checked, all verified\n"
    with catalog.open(kept) as store:
        assert store.measurements(entry(ring).id) == [timed]
        assert [p.point for p in store.programs(entry(ring).id)] == [1]
        assert len(rows(store)) == 3


def catalog_blob(doc: dict):
    from synth.catalog.store.blobs import pack

    return pack(doc)


def test_gc_keeps_measurements_whose_programs_can_be_lowered_again(kept, ring, timed) -> None:  # noqa: F811
    """They may come with an entry, or outlive a frontier that was replaced by one with the same points."""
    with catalog.open(kept) as store:
        store.put(replace(entry(ring), measurements=(timed,)))
        assert store.programs(entry(ring).id) == []
        assert catalog.gc(store)[0] == []
        assert store.measurements(entry(ring).id) == [timed]
