"""The checker of certificates: nothing false gets through it, whatever is done to a certificate."""

import copy
import hashlib
import json
import random
from fractions import Fraction
from pathlib import Path
from unittest import mock

import pytest
import randoms
from test_forged_at_scale import changed

from bench.forge import operators, seeds
from synth.checker.certificates import instance
from synth.checker.certificates.cuts import check
from synth.checker.certificates.instance import Instance
from synth.checker.certificates.priced_cuts import PricedCuts
from synth.checker.documents import exact_frontier
from synth.checker.schedule import machine, replay
from synth.encodings import bounds
from synth.encodings.bounds import dual_rounding, too_few_steps
from synth.encodings.bounds.single_cut import single_cut_bound
from synth.errors import InfeasibleError, VerificationError
from synth.model.collective import Collective, collective
from synth.model.documents.canonical_json import canonical
from synth.model.documents.json_reader import assumed
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Cap, Network, Route
from synth.pareto.first_rows import direct_schedule
from synth.topologies import topology
from tests.command_line import synth

RING = Network("uneven", 4, (Route(0, 1, 1), Route(1, 2, 1), Route(2, 3, 1), Route(3, 0, 3)))
SPLIT = Network("split", 3, (Route(0, 1, 1), Route(1, 0, 1), Route(2, 0, 1)))
SWITCHED = Network(
    "two", 2, (Route(0, 1, 1, ("a",)), Route(0, 1, 2, ("b",)), Route(1, 0, 3, ("a",))), (Cap((0, 1), 2),)
)

LINE = Network("line", 3, (Route(0, 1, 1), Route(1, 2, 1)))


Case = tuple[Network, Collective, dict, int | None, Fraction]


def _made(network: Network, task: Collective, steps: int | None) -> Case:
    bound = bounds.flow(network, task, steps)
    return network, task, bound.certificate, steps, bound.value


def _averaged() -> Case:
    """Return a broadcast whose cuts stand for the mean of their images, and the bound with all images listed."""
    network, task = topology("torus:3x3").network(), collective("broadcast", 9)
    with mock.patch.object(dual_rounding, "AVERAGED", 2):
        certificate = bounds.flow(network, task, 3).certificate
    return network, task, certificate, 3, bounds.flow(network, task, 3).value


def _cases() -> list[Case]:
    dgx1 = topology("dgx1").network()
    found = [
        _made(dgx1, collective("allgather", 8), None),
        _made(dgx1, collective("allgather", 8), 2),
        _made(dgx1, collective("broadcast", 8), 4),
        _made(dgx1, collective("reduce-scatter", 8), 3),
        _made(dgx1, collective("allreduce", 8), 4),
        _made(topology("hypercube:8").network(), collective("allreduce", 8), 3),
        _made(topology("switch:4").network(), collective("allgather", 4), 1),
        _made(RING, collective("allreduce", 4), None),
        _made(SWITCHED, collective("broadcast", 2), 1),
        _averaged(),
        _made(dgx1, collective("scan", 8), None),
        _made(dgx1, collective("scan", 8), 4),
        _made(topology("ring:4").network(), collective("scan", 4), 3),
    ]
    ring = topology("ring:5").network()
    few = too_few_steps.too_few_steps(ring, collective("allreduce", 5), 2)
    assert few is not None
    found.append((ring, collective("allreduce", 5), few.certificate, None, few.value))
    steps = bounds.steps(dgx1, collective("scan", 8))
    found.append((dgx1, collective("scan", 8), steps.certificate, None, steps.value))
    with pytest.raises(InfeasibleError) as caught:
        bounds.steps(SPLIT, collective("allgather", 3))
    assert caught.value.certificate is not None
    found.append((SPLIT, collective("allgather", 3), caught.value.certificate, None, Fraction(0)))
    return found


CASES = _cases()


def _corrupted(rng: random.Random, certificate: dict) -> dict:
    case = seeds.Case("", "", copy.deepcopy(certificate))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice([*operators.OPERATORS.values()])
        change(case, rng, [seeds.Case("", "", other) for _, _, other, *_ in CASES])
    return case.doc


def test_true_certificates_are_accepted() -> None:
    kinds = set()
    for network, task, certificate, steps, value in CASES:
        kinds.add(certificate["kind"])
        assert check(certificate, network.to_json(), task.to_json(1), steps=steps) == value
    assert kinds == {"static-cuts", "deadline-cuts", "distance", "unreachable", "too-few-steps"}


@pytest.mark.parametrize("case", range(len(CASES)))
def test_no_corrupted_certificate_proves_too_much(case: int) -> None:
    network, task, certificate, steps, value = CASES[case]
    docs = network.to_json(), task.to_json(1)
    rng = random.Random(case)
    refused = 0
    for _ in range(250):
        doc = _corrupted(rng, certificate)
        asked = doc.get("steps") if rng.random() < 0.2 and isinstance(doc.get("steps"), int) else steps
        try:
            found = check(doc, *docs, steps=asked)
        except VerificationError:
            refused += 1
            continue
        # asked about fewer steps than the original a bound may rise; a count of steps is no bound on rounds
        if asked == steps and (
            doc["kind"] == certificate["kind"] or doc["kind"] not in ("distance", "unreachable", "too-few-steps")
        ):
            assert found <= value, doc
    assert refused > 25


def test_every_single_weight_price_and_time_matters() -> None:
    """One more on any weight, or one less on any price that is spent, and the optimal packing no longer fits."""
    network, task, certificate, steps, value = CASES[1]
    docs = network.to_json(), task.to_json(1)
    for unit, rows in certificate["cuts"].items():
        for c in range(len(rows)):
            doc = copy.deepcopy(certificate)
            doc["cuts"][unit][c][0] += 1
            with pytest.raises(VerificationError, match="overload"):
                check(doc, *docs, steps=steps)
    for p, row in enumerate(certificate["prices"]):
        for k, y in enumerate(row):
            if k > 2 and y:
                doc = copy.deepcopy(certificate)
                doc["prices"][p][k] += 1
                with pytest.raises(VerificationError, match="come to more than the scale"):
                    check(doc, *docs, steps=steps)
    assert value == Fraction(3, 2)


def _refusal(doc: dict, case: int = 1, **options: int | None) -> str:
    network, task, _, steps, _ = CASES[case]
    with pytest.raises(VerificationError) as caught:
        check(doc, network.to_json(), task.to_json(1), **({"steps": steps} | options))
    return str(caught.value)


def test_refusals_name_the_place() -> None:
    good = CASES[1][2]
    rank_swap = [[1, 0, 2, 3, 4, 5, 6, 7], [1, 0, 2, 3, 4, 5, 6, 7]]
    wrong_units = [good["generators"][0][0], list(range(8))]
    rows = {
        "problem: speaks about another problem": good | {"problem": "0" * 64},
        "steps: is for 2 steps": good | {"steps": 2},
        "generators[0]: link": good | {"generators": [rank_swap]},
        "generators[0]: unit": good | {"generators": [wrong_units]},
        "generators[0]: is no permutation": good | {"generators": [[[0] * 8, list(range(8))]]},
        "scale: expected a number >= 1 and less than 2^200, found 0": good | {"scale": 0},
        "scale: expected a whole number, found True": good | {"scale": True},
        "scale: expected a whole number, found 8.0": good | {"scale": 8.0},
        "kind: unknown kind": good | {"kind": "trust-me"},
        "$: ['value'] is missing or unknown": good | {"value": "9"},
        "count: is more than the price of a link": good | {"count": 1},
        "$: ['reversed'] is missing or unknown": good | {"reversed": True},
    }
    for start, doc in rows.items():
        assert _refusal(doc, steps=3 if "steps" in start else 2).startswith(start)
    twice = copy.deepcopy(good)
    (first, *_), ranks = good["cuts"], good["generators"][0][0]
    moved = [row[:1] + [row[1 + ranks.index(n)] for n in range(8)] for row in good["cuts"][first]]
    twice["cuts"][str(ranks[int(first)])] = moved
    assert "is in the orbit of another unit" in _refusal(twice)
    assert "malformed" in _refusal({})
    assert "malformed" in _refusal([])  # type: ignore[arg-type]


def test_a_bound_is_for_what_it_says() -> None:
    deadline, static, steps, none = CASES[1][2], CASES[0][2], CASES[-2][2], CASES[-1][2]
    assert "is for 2 steps, not any number" in _refusal(deadline, steps=None)
    assert "is for 2 steps, not 3" in _refusal(deadline, steps=3)
    docs = CASES[0][0].to_json(), CASES[0][1].to_json(1)
    assert check(static, *docs, steps=5) == check(static, *docs) == Fraction(7, 6)
    assert "says nothing about rounds" in _refusal(steps, -2, steps=2)
    assert "says nothing about rounds" in _refusal(steps, -2, chunks=1)
    assert "says nothing about rounds" in _refusal(none, -1, steps=2)


def test_rounding_uses_the_slack_of_each_step() -> None:
    network, task = topology("dgx1").network(), collective("allgather", 8)
    certificate = bounds.flow(network, task, 2).certificate
    docs = network.to_json(), task.to_json(1)
    assert [check(certificate, *docs, steps=2, chunks=c) for c in (1, 2, 3)] == [2, Fraction(3, 2), Fraction(5, 3)]
    # a packing that leaves bandwidth free in step 2 proves that step's one round beside what it packs
    lazy = {
        "kind": "deadline-cuts",
        "problem": problem_fingerprint(LINE, collective("broadcast", 3)),
        "steps": 3,
        "scale": 1,
        "prices": [["link", 0, 1, 1, 0, 0], ["link", 1, 2, 0, 0, 1]],
        "cuts": {"0": [[1, -1, 1, 1]]},
        "generators": [],
    }
    with pytest.raises(VerificationError, match="does not part"):
        check(lazy, LINE.to_json(), collective("broadcast", 3).to_json(1), steps=3)
    lazy["cuts"] = {"0": [[1, -1, 1, 3]]}
    docs = LINE.to_json(), collective("broadcast", 3).to_json(1)
    assert check(lazy, *docs, steps=3) == 1
    assert check(lazy, *docs, steps=3, chunks=4) == Fraction(5, 4)
    assert check(lazy, *docs, steps=3, chunks=1) == 3  # three steps, three rounds


def test_hostile_sizes_are_refused_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "MOST_WORK", 200_000)
    good = CASES[1][2]
    huge = copy.deepcopy(good)
    (rows,) = list(huge["cuts"].values())[:1]
    rows += [[0, *rows[0][1:]]] * 30_000
    assert "too large" in _refusal(huge)
    assert _refusal(good | {"steps": 10**9}, steps=10**9)


def test_covers_and_counts_are_not_taken_on_trust() -> None:
    good = CASES[5][2]
    assert good["covers"]
    for k, change in ((4, 1), (3, 1), (3, -1)):  # one send more; a window one step off
        for c in range(len(good["covers"]["0"])):
            doc = copy.deepcopy(good)
            doc["covers"]["0"][c][k] += change
            _refusal(doc, 5)
    allgather = CASES[1][2] | {"count": 0}
    assert check(allgather, CASES[1][0].to_json(), CASES[1][1].to_json(1), steps=2) == Fraction(3, 2)
    doc = CASES[3][2] | {"kind": "static-cuts", "steps": None}
    _refusal(doc, 3)


def test_means_of_cuts_are_taken_over_symmetries_that_keep_the_unit() -> None:
    network, task, good, steps, _ = _averaged()
    assert len(good["cuts"]["0"]) < len(bounds.flow(network, task, steps).certificate["cuts"]["0"])

    def refusal(**fields: object) -> str:
        with pytest.raises(VerificationError) as caught:
            check(good | fields, network.to_json(), task.to_json(1), steps=steps)
        return str(caught.value)

    unlike = [[0, 2, 1, 5, 3, 4, 8, 6, 7], [0]]
    assert refusal(averaged={"0": [*good["averaged"]["0"], unlike]}).startswith("averaged.0[2]: link")
    assert "overload link" in refusal(averaged={"0": []})
    assert "names a unit without cuts" in refusal(averaged=good["averaged"] | {"1": []})
    shifted = [*good["averaged"]["0"], [[*range(3, 9), 0, 1, 2], [0]]]
    assert "unit 0 is not kept" in refusal(averaged={"0": shifted})
    ring, task = topology("ring:3").network(), collective("allgather", 3)
    doc = bounds.flow(ring, task, 1).certificate
    (unit,) = doc["cuts"]
    with pytest.raises(VerificationError, match=f"does not keep unit {unit}"):
        check(doc | {"averaged": {unit: doc["generators"]}}, ring.to_json(), task.to_json(1), steps=1)


def test_a_broken_problem_document_is_refused() -> None:
    network, task, certificate, steps, _ = CASES[1]
    links, coll = network.to_json(), task.to_json(1)
    for other_links in (
        links | {"links": [*links["links"], links["links"][0]]},
        links | {"ranks": 7},
        links | {"links": [[0, 1, -2]]},
        links | {"links": [[0, 1, True]]},
        {},
    ):
        with pytest.raises(VerificationError):
            check(certificate, other_links, coll, steps=steps)
    for other in (
        coll | {"pre": coll["pre"][1:]},
        coll | {"ranks": 9},
        coll | {"combining": 1},
        coll | {"post": [*coll["post"], [0, 0]]},
    ):
        with pytest.raises(VerificationError):
            check(certificate, links, other, steps=steps)


def test_rows_that_limits_share_are_checked_as_rows_of_their_own():
    """The document that a network keeps has one row of a route in all limits; that of a file has several."""
    network, task = topology("fat-tree:8").network(), collective("scatter", 8)
    bound = single_cut_bound(network, task)
    read = json.loads(json.dumps(network.document))
    shared, own = (instance.Instance(doc, task.document) for doc in (network.document, read))
    assert (shared.limits, shared.digest) == (own.limits, own.digest)
    assert check(bound.certificate, read, task.document) == bound.value
    rows = [limit["links"][0] for limit in read["limits"]]
    for wrong, words in ((99, "expected a number"), (rows[0][1], "to itself"), (True, "whole number")):
        row = [wrong, *rows[0][1:]]
        limits = [{"links": [row, row], "units": 1}, *read["limits"]]
        with pytest.raises(VerificationError, match=words):
            replay.problem({**read, "limits": limits}, task.document)
        with pytest.raises(VerificationError):
            check(bound.certificate, {**read, "limits": limits}, task.document)


@pytest.mark.parametrize("name", ["ring:4", "fat-tree:8", "dgx-a100", "star:4"])
def test_the_checker_hashes_what_it_has_read_to_the_same_fingerprint(name):
    plain = topology(name)
    for network in (plain.network(), plain.multicast_network()):
        for task in (collective(kind, network.ranks) for kind in ("scatter", "scan")):
            doc = json.loads(json.dumps(network.document))
            problem = {key: (doc | task.document)[key] for key in ("links", "limits", "pre", "post", "combining")}
            problem |= {"multicast": doc["multicast"]} if "multicast" in doc else {}
            digest = hashlib.sha256(canonical(problem)).hexdigest()
            assert problem_fingerprint(network, task) == digest
            assert machine.machine_of(doc, "$").problem_fingerprint(task.document) == digest


@pytest.mark.parametrize(("column", "value", "place", "words"), [
    (2, 0, "[2]", "expected a number >= 1"), (2, True, "[2]", "whole number"),
    (1, 99, "[1]", "expected a number in 0..7"), (1, 1.0, "[1]", "whole number"),
    (1, 0, "", "link from rank 0 to itself"), (3, [], "", "list of switch names"), (3, [7], "", "list of switch names"),
    (slice(2, 4), [], "", r"expected \[src, dst, units\]"),
])  # fmt: skip
def test_a_row_that_is_wrong_is_named_among_many(column, value, place, words):
    doc = topology("fat-tree:8").network().to_json()
    doc["links"][9][column] = value
    assert doc["links"][9][0] == 0
    with pytest.raises(VerificationError, match=words) as caught:
        machine.ReplayMachine.read(doc, "$")
    assert caught.value.place == f"$.links[9]{place}"


def test_a_wire_that_is_missing_is_named():
    doc = topology("fat-tree:8").network().to_json() | {"limits": []}
    doc["links"][9][3] = ["leaf0", "spine0"]
    with pytest.raises(VerificationError, match=r"link 0 -> 6 uses a wire spine0 -> 6 that does not exist"):
        machine.ReplayMachine.read(doc, "$").check_wires("$")


def test_a_link_that_is_listed_twice_is_named():
    doc = topology("fat-tree:8").network().to_json()
    doc["links"].append([*doc["links"][9]])
    with pytest.raises(VerificationError, match="is listed twice") as caught:
        machine.ReplayMachine.read(doc, "$")
    assert caught.value.place == f"$.links[{len(doc['links']) - 1}]"


def test_the_machine_of_a_network_is_read_once_and_no_longer_than_the_network_is_there() -> None:
    """Each of many reads of a machine of 100,000 routes would take a large part of a second."""
    network, task = topology("fat-tree:8").network(), collective("scatter", 8)
    read = machine.ReplayMachine.read
    with mock.patch.object(machine.ReplayMachine, "read", side_effect=read) as reader:
        bound = single_cut_bound(network, task)
        assert direct_schedule(network, task) is not None
        assert check(bound.certificate, network, task.document) == bound.value
        assert reader.call_count == 1
        assert check(bound.certificate, network.to_json(), task.document) == bound.value
        assert reader.call_count == 2  # a document may be anybody's


# -------------------------------- the links that enter a cut, as of a look at every link and step


@pytest.mark.parametrize("layers", [1, 4])
@pytest.mark.parametrize("seed", range(20))
def test_they_are_those_of_every_link_and_step(seed, layers):
    rng = random.Random(seed)
    drawn = randoms.network(rng, rng.randint(2, 6))
    problem = Instance(drawn.document, collective("allgather", drawn.ranks).document)
    kind = {"kind": "static-cuts"} if layers == 1 else {"kind": "deadline-cuts", "steps": layers}
    packing = PricedCuts(kind | {"scale": 1, "prices": [], "generators": []}, problem)
    for _ in range(20):
        theta = [rng.choice((-1, 1) if layers == 1 else range(-1, layers + 1)) for _ in range(drawn.ranks)]
        wanted = []
        for i, (src, dst, _) in enumerate(problem.links):
            wanted += [(i, t) for t in range(1, layers + 1) if theta[src] < t - 1 and theta[dst] >= t]
        for _ in range(2):  # the second answer is the first one, kept, and counted as work again
            left = problem.work
            assert sorted(packing.entering_sends(theta)) == wanted
            assert problem.work < left


# ---------------------------------------------------------------- documents of `synth bound -o`


@pytest.fixture(scope="module")
def doc(tmp_path_factory: pytest.TempPathFactory) -> dict:
    file: Path = tmp_path_factory.mktemp("bounds") / "b.json"
    synth("bound --topo dgx1 --coll scan --format json -o", file)
    assert "R/C ≥ 1/6 for any S" in synth("verify", file).output
    return json.loads(file.read_text())


def test_every_bound_is_checked(doc: dict) -> None:
    assert exact_frontier.document(doc) == [
        "bound: S ≥ 2, certificate checked",
        "bound: R/C ≥ 1 at S=2, certificate checked",
        "bound: R/C ≥ 1/2 at S=3, certificate checked",
        "bound: R/C ≥ 1/3 at S=4, certificate checked",
        "bound: R/C ≥ 5/18 at S=5, certificate checked",
        "bound: R/C ≥ 1/4 at S=6, certificate checked",
        "bound: R/C ≥ 7/30 at S=7, certificate checked",
        "bound: R/C ≥ 2/9 at S=8, certificate checked",
        "bound: R/C ≥ 1/6 for any S, certificate checked",
        assumed(),
    ]


@pytest.mark.parametrize(("path", "value"), [
    ("bounds.2.value", "2/3"), ("bounds.2.certificate.prices.0.3", 10**6), ("bounds.2.steps", 4), ("bounds.0.steps", 2),
    ("topology.links.0.2", 9), ("collective.post.0.2", [0, 1]), ("proved", True),
])  # fmt: skip
def test_one_change_and_it_fails(doc: dict, path: str, value: object) -> None:
    bad = changed(copy.deepcopy(doc), path, value)
    with pytest.raises(VerificationError):
        exact_frontier.document(bad)
