"""More steps than distances ask for: that one chunk alone has no schedule of so few is proved by a refutation."""

import json
import random
from itertools import product

import pytest
import randoms

import synth
from synth.catalog import relabelling as relabel
from synth.checker.certificates import cuts
from synth.checker.documents import exact_frontier
from synth.encodings.bounds import too_few_steps
from synth.errors import VerificationError
from synth.model.collective import Collective, collective
from synth.model.frontier import Frontier
from synth.model.symmetry import renumbering
from synth.model.topology import Network
from tests.command_line import synth as cli

SIX = [0, 1, 2, 3, 5, 6]  # of a DGX-1: any two are within two links, and two steps do not do


@pytest.fixture(scope="module")
def six() -> tuple[Network, Collective, dict]:
    network, task = synth.topology("dgx1", ranks=SIX).network(), collective("allreduce", 6)
    found = too_few_steps.too_few_steps(network, task, 2)
    assert found is not None
    assert found.value == 3
    return network, task, found.certificate


def reachable(network: Network, sources: frozenset[int], steps: int) -> set[tuple]:
    """All that ranks may hold after so many steps, by going through whatever each may receive and keep."""
    inputs = [frozenset([n]) & sources for n in range(network.ranks)]
    states = {tuple(inputs)}
    for _ in range(steps):
        for held in list(states):
            after = []
            for n in range(network.ranks):
                parts = [{held[n]}, {inputs[n]}]
                parts += [{held[r.src], inputs[r.src]} for r in network.routes if r.dst == n]
                sums = {frozenset[int]()}
                for options in parts:
                    sums |= {before | more for before in sums for more in options if not before & more}
                after.append(sums - {frozenset()} or sums)  # what nothing replaces stays
            states |= set(product(*after))
    return states


@pytest.mark.parametrize("seed", range(24))
def test_it_is_said_exactly_where_no_contents_lead_there(seed: int) -> None:
    """Of an allreduce, a scan, and sums of some inputs that some ranks want."""
    rng = random.Random(seed)
    network = randoms.network(rng, 3)
    name = rng.choice(["allreduce", "scan", "mine"])
    task = collective("allreduce" if name == "mine" else name, 3)
    if name == "mine":
        sources = frozenset(rng.sample(range(3), 2))
        wants = tuple((n, frozenset(rng.sample(sorted(sources), rng.randint(1, 2)))) for n in rng.sample(range(3), 2))
        task = Collective(name, 3, (sources,), (frozenset(dict(wants)),), True, (), (wants,))
    goal = {n: task.wanted(0, n) for n in task.post[0]}
    for steps in (1, 2, 3):
        states = reachable(network, task.pre[0], steps)
        possible = any(all(held[n] == want for n, want in goal.items()) for held in states)
        found = too_few_steps.too_few_steps(network, task, steps)
        assert (found is None) == possible
        assert found is None or found.value == steps + 1


@pytest.mark.parametrize(
    ("name", "task", "steps"), [("dgx1", "allreduce", 2), ("ring:4", "broadcast", 1), ("ring:4", "reduce-scatter", 1)]
)
def test_no_proof_where_there_is_a_schedule_or_no_sum_of_one_unit(name, task, steps) -> None:
    network = synth.topology(name).network()
    assert too_few_steps.too_few_steps(network, collective(task, network.ranks), steps) is None


def test_what_was_altered_is_refused(six) -> None:
    network, task, certificate = six
    docs = network.to_json(), task.to_json(1)
    assert cuts.check(certificate, *docs) == 3
    text = certificate["proof"]
    for change in (
        {"steps": 3}, {"steps": 0}, {"unit": 1}, {"proof": text[:-8]}, {"proof": ""}, {"proof": None},
        {"problem": "0"}, {"more": 1},
    ):  # fmt: skip
        with pytest.raises(VerificationError):
            cuts.check(certificate | change, *docs)
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
    assert "needs at least 3 steps, at most 2 were allowed" in cli(words, code=3).stderr
    assert "no schedule of 2 steps or fewer, S ≥ 3, certificate checked" in cli("verify proof.json").stdout
    doc = json.loads((tmp_path / "proof.json").read_text()) | {"max_steps": 3}
    (tmp_path / "proof.json").write_text(json.dumps(doc))
    cli("verify proof.json", code=5)
