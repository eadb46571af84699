"""The links that enter a cut, found from the side with fewer ranks, are those of a look at every link and step."""

from __future__ import annotations

import random

import pytest
from randoms import network

from synth.checker.certificates.instance import Instance
from synth.checker.certificates.priced_cuts import PricedCuts
from synth.model.collective import collective
from synth.topologies import topology


@pytest.mark.parametrize("layers", [1, 4])
@pytest.mark.parametrize("seed", range(20))
def test_they_are_those_of_every_link_and_step(seed, layers):
    rng = random.Random(seed)
    machine = network(rng, rng.randint(2, 6))
    task = collective("allgather", machine.ranks)
    problem = Instance(machine.document, task.document)
    kind = {"kind": "static-cuts"} if layers == 1 else {"kind": "deadline-cuts", "steps": layers}
    packing = PricedCuts(kind | {"scale": 1, "prices": [], "generators": []}, problem)
    times = (-1, 1) if layers == 1 else range(-1, layers + 1)
    for _ in range(20):
        theta = [rng.choice(list(times)) for _ in range(machine.ranks)]
        for _ in range(2):  # the second answer is the first one, kept
            found = packing.entering_sends(theta)
            assert sorted(found) == [
                (i, t)
                for i, (src, dst, _) in enumerate(problem.links)
                for t in range(1, layers + 1)
                if theta[src] < t - 1 and theta[dst] >= t
            ]


def test_work_is_counted_for_each_use():
    machine = topology("ring:5").network()
    problem = Instance(machine.document, collective("allgather", 5).document)
    packing = PricedCuts({"kind": "static-cuts", "scale": 1, "prices": [], "generators": []}, problem)
    left = [problem.work]
    for _ in range(3):
        packing.entering_sends([1, -1, -1, 1, -1])
        left.append(problem.work)
    assert left[0] > left[1] > left[2] > left[3]
