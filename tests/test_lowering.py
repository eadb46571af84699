"""Whatever makes a program of a schedule replays it first: a wrong schedule ends in one line and exit code 5."""

import json
from dataclasses import replace

import pytest
import test_export
import test_plan_export
from click.testing import CliRunner

from synth.catalog.tuner.candidates import NamedSchedule, measured_candidates
from synth.catalog.tuner.measurements import Measurement, Sample
from synth.commands import api
from synth.commands import root as cli
from synth.errors import VerificationError
from synth.program import checked_lowering


def without_last_send(schedule):
    last = schedule.steps[-1]
    return replace(schedule, steps=(*schedule.steps[:-1], last._replace(sends=last.sends[:-1])))


WRONG = without_last_send(test_export.ring_schedule(4))


@pytest.fixture
def files(tmp_path):
    """A wrong schedule, a frontier whose second point is wrong, and a plan that names a wrong schedule beside good
    ones."""
    good = test_export.frontier()
    points = (good.points[0], replace(good.points[1], source=WRONG))
    documents = {
        "schedule": WRONG,
        "frontier": replace(good, points=points),
        "plan": test_plan_export.change(1, schedule=WRONG),
    }
    for name, made in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(made.to_json()))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "export schedule.json -o out",
        "export schedule.json --to mscclpp -o out",
        "export schedule.json --to mscclpp --protocol LL -o out",
        "export schedule.json --to trace -o out",
        "export frontier.json --point 2 -o out",
        "export --plan plan.json -o out",
        "export --plan plan.json --to mscclpp-dir -o out",
        "run schedule.json",
        "run frontier.json --point 2",
        "lint schedule.json",
        "bench schedule.json --executor reference",
    ],
)
def test_a_wrong_schedule_ends_in_one_line(files, words):
    names = [str(files / word) if "." in word or word == "out" else word for word in words.split()]
    outcome = CliRunner().invoke(cli, names)
    (line,) = outcome.stderr.strip().splitlines()
    assert (outcome.exit_code, line.startswith("synth: error: ")) == (5, True), line
    assert line.endswith("ends without chunk 7")
    assert (
        "plan" in words or "allgather on ring:4: no program is made of a wrong schedule: " in line
    )  # a plan is read with care
    assert not (files / "out").exists()


def test_the_doors_of_the_library():
    good = test_export.ring_schedule(4)
    assert api.lower(good).ranks == checked_lowering.onesided(good).ranks == 4
    for door in (api.lower, api.export_program, api.run, checked_lowering.lower, checked_lowering.onesided):
        with pytest.raises(VerificationError):
            door(WRONG)
    with pytest.raises(VerificationError):  # what was measured is compared with what a schedule lowers to
        alike = {"chunks": WRONG.chunks, "steps": WRONG.step_count, "rounds_per_chunk": str(WRONG.rounds_per_chunk)}
        one = Measurement("x", "synth", "allgather", 4, (Sample(64, 1e-5),), "", "f", fingerprint="", **alike)
        measured_candidates([NamedSchedule("wrong", WRONG)], [one])
