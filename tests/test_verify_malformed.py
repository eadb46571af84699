"""Documents with a null, a number or text where something else belongs: one clear line, with no Python type in it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from synth.checker.documents import exact_frontier
from synth.checker.schedule import replay
from synth.commands import api
from synth.errors import InfeasibleError, SynthError, UndecidedError, VerificationError
from synth.model.schedule import Schedule
from synth.scale.search import bound
from synth.topologies import modify, topology

PYTHON = re.compile(
    r"\w*Error\(|'NoneType'|unhashable|subscriptable|iterable|unpack|zip\(|operand|has no attribute|unsupported"
)


def documents() -> Iterator[tuple[str, dict]]:
    frontier = api.frontier("ring:4", "allgather", engine="exact")
    yield "frontier", frontier.to_json()
    yield "schedule", frontier.points[0].schedule.to_json()  # type: ignore[union-attr]
    from synth.view import bound_tables

    machine, task = topology("ring:4"), api.collective("allgather", 4)
    yield "bounds", bound_tables.document(machine.network(), task, api.bound(machine, task))
    for name, what in (("ring:4", ("0-1", "2-3")), ("torus:20x20", ("0-1", "0-19", "0-20", "0-380"))):
        apart = modify.apply(topology(name), without=what)
        with pytest.raises(InfeasibleError) as raised:
            api.frontier(apart, "broadcast")
        yield f"infeasible {name}", api.infeasible_document(apart, "broadcast", raised.value) or {}
    for what in ("allgather", "alltoall", "allreduce"):
        yield f"large {what}", bound(modify.apply(topology("ring:5"), degrade=("0-1:1/2",)), what).to_json()


def places(value: Any, way: tuple = ()) -> Iterator[tuple]:
    if way:
        yield way
    if len(way) < 6:
        rows = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
        for key, inner in rows:
            yield from places(inner, (*way, key))


@pytest.fixture(scope="module")
def made():
    return {name: json.loads(json.dumps(doc)) for name, doc in documents()}


@pytest.mark.parametrize("wrong", [None, 3, "x", [], {}])
def test_whatever_is_wrong_is_said_in_a_clear_line(made, wrong):
    for name, doc in made.items():
        assert api.verify(doc), name
        for way in places(doc):
            altered = copy.deepcopy(doc)
            at = altered
            for key in way[:-1]:
                at = at[key]
            at[way[-1]] = wrong
            try:
                api.verify(altered)
            except SynthError as error:
                assert "\n" not in str(error) and not PYTHON.search(str(error)), (name, way, str(error))


@pytest.mark.parametrize(
    "name", ["frontier", "bounds", "infeasible ring:4", "infeasible torus:20x20", "large allgather"]
)
def test_no_certificate_is_no_proof(name, made):
    doc = copy.deepcopy(made[name])
    holder = {"frontier": lambda: doc["points"][0]["bound"], "bounds": lambda: doc["bounds"][0]}.get(
        name, lambda: doc.get("bound", doc)
    )()
    holder["certificate"] = None
    with pytest.raises(SynthError, match="there is no certificate: nothing proves this"):
        api.verify(doc)


def test_an_unknown_schema_is_answered_with_all_that_are_known():
    with pytest.raises(SynthError) as raised:
        api.verify({"schema": "synth.other/1"})
    for known in (*exact_frontier.SCHEMAS, "synth.bulk/1"):
        assert known in str(raised.value)


def test_where_memory_ends_nothing_is_confirmed_or_refuted(monkeypatch):
    def exhausted(doc):
        raise MemoryError

    monkeypatch.setattr(exact_frontier, "document", exhausted)
    with pytest.raises(UndecidedError, match="neither confirmed nor refuted"):
        api.verify(api.frontier("ring:3", "allgather", engine="exact").to_json())


@pytest.mark.parametrize("rounds", ["1/2", "1", 1.0, True, None, 0, -1])
def test_a_step_has_a_whole_number_of_rounds(rounds):
    document = api.baseline("ring", "ring:3", "allgather").to_json()
    del document["fingerprint"]
    document["steps"][0]["rounds"] = rounds
    with pytest.raises(VerificationError, match=r"steps\[0\].rounds: expected"):
        replay.schedule(document)
    if type(rounds) is not int:
        with pytest.raises(ValueError, match="no whole number of rounds"):
            Schedule.from_json(document)
