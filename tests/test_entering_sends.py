"""The links that enter a cut, found from the side with fewer ranks, are those of a look at every link and step."""

import random

import pytest
from randoms import network

from synth.checker.certificates.instance import Instance
from synth.checker.certificates.priced_cuts import PricedCuts
from synth.model.collective import collective


@pytest.mark.parametrize("layers", [1, 4])
@pytest.mark.parametrize("seed", range(20))
def test_they_are_those_of_every_link_and_step(seed, layers):
    rng = random.Random(seed)
    machine = network(rng, rng.randint(2, 6))
    problem = Instance(machine.document, collective("allgather", machine.ranks).document)
    kind = {"kind": "static-cuts"} if layers == 1 else {"kind": "deadline-cuts", "steps": layers}
    packing = PricedCuts(kind | {"scale": 1, "prices": [], "generators": []}, problem)
    for _ in range(20):
        theta = [rng.choice((-1, 1) if layers == 1 else range(-1, layers + 1)) for _ in range(machine.ranks)]
        wanted = []
        for i, (src, dst, _) in enumerate(problem.links):
            wanted += [(i, t) for t in range(1, layers + 1) if theta[src] < t - 1 and theta[dst] >= t]
        for _ in range(2):  # the second answer is the first one, kept, and counted as work again
            left = problem.work
            assert sorted(packing.entering_sends(theta)) == wanted
            assert problem.work < left
