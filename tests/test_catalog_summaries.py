"""Tables of entries are read without their schedules, and agree with the whole entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from synth import api
from synth.api import catalog_jobs
from synth.catalog.entry import Entry
from synth.catalog.jobs import table
from synth.catalog.store.store import Store
from synth.errors import FormatError
from synth.model.frontier import Frontier
from synth.model.rational import show
from synth.model.scale_frontier import ScaleFrontier
from synth.model.schedule import Schedule

FLEET = """
topologies:
  - ring:4
  - {name: dgx1, collectives: [alltoall], options: {max-steps: 2, time-limit: 0.001s}}
  - {name: line:3, allocations: all}
  - {name: ring:9, collectives: [allgather], options: {engine: flow}}
  - {name: dgx-a100*2, collectives: [allgather], options: {engine: flow, max-steps: 3}}
collectives: [allgather, scan]
options: {max-steps: 3}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small job and its catalog."""
    folder: Path = tmp_path_factory.mktemp("summaries")
    (folder / "fleet.yaml").write_text(FLEET)
    api.build_catalog(folder / "fleet.yaml", folder / "a.db", inline=True)
    return folder


def figures(entry: Entry) -> str:
    """By the values of the whole entry."""
    found = entry.frontier
    if isinstance(found, ScaleFrontier):
        return f"≥ {show(found.bound)}; " + ", ".join(f"{p.steps}: {show(p.rounds_per_chunk)}" for p in found.points)
    assert isinstance(found, Frontier)
    rows = {p.steps: (p.bound.value, p.rounds_per_chunk) for p in found.points}
    for left in found.open:
        rows[left.steps] = (max(left.lower, rows.get(left.steps, (left.lower,))[0]), left.upper)  # type: ignore[assignment]
    return ", ".join(
        f"{steps}: "
        + (f"≥ {show(low)}" if high is None else show(low) if low == high else f"{show(low)} to {show(high)}")
        for steps, (low, high) in sorted(rows.items())
    )


def test_summaries_agree_with_their_entries(made):
    with Store.open(made / "a.db") as store:
        kinds = set()
        for name in store.fingerprints():
            entry, summary = store.get(name), store.summary(name)
            assert table.figures(summary) == figures(entry)
            assert dict(summary.versions) == dict(entry.provenance.versions)
            assert (summary.row.id, summary.row.topology, summary.row.state) == (entry.id, entry.topology, entry.state)
            if isinstance(entry.frontier, Frontier):
                assert (summary.complete, summary.max_steps) == (entry.frontier.complete, entry.frontier.max_steps)
            kinds.add((entry.state, type(entry.frontier).__name__))
        assert {("done", "Frontier"), ("open", "Frontier"), ("done", "ScaleFrontier")} <= kinds, kinds


def test_flow_methods_keep_to_the_steps_that_were_asked_for(made):
    with Store.open(made / "a.db") as store:
        (entry,) = [store.get(name) for name in store.fingerprints() if store.get(name).topology == "dgx-a100*2"]
    assert entry.frontier is not None and [p.steps for p in entry.frontier.points] == [1, 2, 3]


def test_the_page_needs_no_schedule(made, monkeypatch):
    whole = catalog_jobs.catalog_table(made / "fleet.yaml", made / "a.db")
    monkeypatch.setattr(Schedule, "from_json", lambda doc: pytest.fail("a schedule was read"))
    monkeypatch.setattr(Frontier, "from_json", lambda doc: pytest.fail("a frontier was read"))
    assert catalog_jobs.catalog_table(made / "fleet.yaml", made / "a.db") == whole
    assert whole.count("| `") == 7 and "complete" in whole and "≥ 4; 4: 4" in whole


def test_a_damaged_entry_is_named(made, tmp_path):
    copy = tmp_path / "b.db"
    copy.write_bytes((made / "a.db").read_bytes())
    with Store.open(copy) as store:
        name = store.fingerprints()[0]
        store.base.execute("UPDATE blobs SET body = CAST(x'00' || substr(body, 2) AS BLOB)")
        store.base.commit()
        with pytest.raises(FormatError, match=f"entry {name[:12]} is damaged: its frontier its checksum does not fit"):
            store.summary(name)
        store.base.execute("DELETE FROM blobs")
        store.base.commit()
        with pytest.raises(FormatError, match=f"entry {name[:12]} is damaged: its frontier is gone"):
            store.summary(name)
