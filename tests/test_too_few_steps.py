"""More steps than distances ask for: that one chunk alone has no schedule of so few is proved by a refutation."""

import copy
import json
import random
from itertools import product

import pytest
import randoms
from click.testing import CliRunner

import synth
from synth.catalog import relabelling as relabel
from synth.checker.certificates import cuts
from synth.checker.documents import exact_frontier
from synth.commands import root
from synth.encodings.bounds import too_few_steps
from synth.errors import VerificationError
from synth.model.collective import Collective, collective
from synth.model.frontier import Frontier
from synth.model.symmetry import renumbering
from synth.model.topology import Network

SIX = [0, 1, 2, 3, 5, 6]  # of a DGX-1: any two are within two links, and two steps do not do


@pytest.fixture(scope="module")
def six() -> tuple[Network, Collective, dict]:
    network, task = synth.topology("dgx1", ranks=SIX).network(), collective("allreduce", 6)
    found = too_few_steps.too_few_steps(network, task, 2)
    assert found is not None
    assert found.value == 3
    return network, task, found.certificate


def reachable(network: Network, steps: int) -> set[tuple]:
    """All that ranks may hold after so many steps, by going through whatever each may receive and keep."""
    start = tuple(frozenset([n]) for n in range(network.ranks))
    states = {start}
    for _ in range(steps):
        states |= {
            after for held in states for after in product(*(_next(network, held, n) for n in range(network.ranks)))
        }
    return states


def _next(network: Network, held: tuple, n: int) -> set[frozenset]:
    parts = [{held[n]}, {frozenset([n])}] + [{held[r.src], frozenset([r.src])} for r in network.routes if r.dst == n]
    sums = {frozenset()}
    for options in parts:
        sums |= {before | more for before in sums for more in options if not before & more}
    return sums - {frozenset()}


@pytest.mark.parametrize("seed", range(12))
def test_it_is_said_exactly_where_no_contents_lead_there(seed: int) -> None:
    rng = random.Random(seed)
    network = randoms.network(rng, 3)
    task = collective(rng.choice(["allreduce", "scan"]), 3)
    goal = [task.wanted(0, n) for n in range(3)]
    for steps in (1, 2, 3):
        possible = any(
            all(mine == want for mine, want in zip(held, goal, strict=True)) for held in reachable(network, steps)
        )
        found = too_few_steps.too_few_steps(network, task, steps)
        assert (found is None) == possible
        assert found is None or found.value == steps + 1


def test_no_proof_where_there_is_a_schedule() -> None:
    assert too_few_steps.too_few_steps(synth.topology("dgx1").network(), collective("allreduce", 8), 2) is None


def test_only_for_sums_of_one_unit() -> None:
    network = synth.topology("ring:4").network()
    assert too_few_steps.too_few_steps(network, collective("broadcast", 4), 1) is None
    assert too_few_steps.too_few_steps(network, collective("reduce-scatter", 4), 1) is None


def test_what_was_altered_is_refused(six) -> None:
    network, task, certificate = six
    docs = network.to_json(), task.to_json(1)
    assert cuts.check(certificate, *docs) == 3
    text = certificate["proof"]
    for change in (
        {"steps": 3},
        {"steps": 0},
        {"unit": 1},
        {"proof": text[:-8]},
        {"proof": ""},
        {"proof": None},
        {"problem": "0"},
        {"more": 1},
    ):
        bad = copy.deepcopy(certificate) | change
        with pytest.raises(VerificationError):
            cuts.check(bad, *docs)
    with pytest.raises(VerificationError, match="says nothing about rounds"):
        cuts.check(certificate, *docs, steps=2)
    wider = synth.topology("dgx1", ranks=[0, 1, 2, 3, 4, 5]).network()
    with pytest.raises(VerificationError):
        cuts.check(certificate, wider.to_json(), task.to_json(1))


def test_a_frontier_that_begins_later_is_complete() -> None:
    frontier = synth.frontier(synth.topology("dgx1", ranks=SIX), "allreduce", max_steps=4)
    assert [p.steps for p in frontier.points] == [3, 4]
    assert frontier.complete
    doc = json.loads(json.dumps(frontier.to_json()))
    exact_frontier.document(doc)
    assert Frontier.from_json(doc).to_json() == frontier.to_json()
    doc["bounds"] = [b for b in doc["bounds"] if b["steps"] != 0]
    with pytest.raises(VerificationError, match="no proof that fewer than 3 steps are too few"):
        exact_frontier.document(doc)


def test_it_moves_to_another_numbering(six) -> None:
    network, task, certificate = six
    asked = synth.topology("dgx1", ranks=SIX[::-1]).network()
    found = renumbering((network, task), (asked, task))
    assert found is not None
    moved = relabel.certificate(certificate, relabel.ProblemMap((network, task), (asked, task), found))
    assert cuts.check(moved, asked.to_json(), task.to_json(1)) == 3
    with pytest.raises(VerificationError):
        cuts.check(certificate | {"problem": moved["problem"]}, asked.to_json(), task.to_json(1))


def test_too_few_steps_allowed_is_proved_infeasible(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYNTH_CACHE", str(tmp_path / "cache"))
    words = "pareto --topo dgx1 --ranks 0,1,2,3,5,6 --coll allreduce --max-steps 2 -o proof.json"
    outcome = CliRunner().invoke(root, words.split())
    assert outcome.exit_code == 3
    assert "needs at least 3 steps, at most 2 were allowed" in outcome.stderr
    shown = CliRunner().invoke(root, ["verify", "proof.json"])
    assert shown.exit_code == 0
    assert "no schedule of 2 steps or fewer, S ≥ 3, certificate checked" in shown.stdout
    doc = json.loads((tmp_path / "proof.json").read_text()) | {"max_steps": 3}
    (tmp_path / "proof.json").write_text(json.dumps(doc))
    assert CliRunner().invoke(root, ["verify", "proof.json"]).exit_code == 5
