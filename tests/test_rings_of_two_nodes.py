"""One ring over two nodes of a quotient network: seen at once where there is none, and only there."""

from itertools import product
from math import gcd

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.scale.baselines.rings import cp_sat_circuits
from synth.scale.baselines.rings.quotient_network import QuotientNetwork


@st.composite
def machines(draw):
    order, count = draw(st.sampled_from((1, 2, 4, 6, 9))), draw(st.integers(2, 6))
    room = tuple(draw(st.lists(st.integers(0, 4), min_size=3, max_size=3)))
    uses = tuple(
        tuple((k, draw(st.integers(1, 2))) for k in draw(st.sets(st.integers(0, 2), min_size=1))) for _ in range(count)
    )
    src = tuple(draw(st.integers(0, 1)) for _ in range(count))
    turn = tuple(draw(st.integers(0, order - 1)) for _ in range(count))
    rank = np.arange(2 * order).reshape(2, order)
    return QuotientNetwork(2, order, src, tuple(1 - u for u in src), turn, uses, room, tuple(range(count)), rank)


def fits(quotient: QuotientNetwork, width: int) -> bool:
    for one, two in product(range(len(quotient.src)), repeat=2):
        load = [0, 0, 0]
        for k, times in (*quotient.uses[one], *quotient.uses[two]):
            load[k] += times * width
        roomy = all(much <= most for much, most in zip(load, quotient.capacity, strict=True))
        if (
            quotient.src[one] == 0
            and quotient.src[two] == 1
            and roomy
            and gcd(quotient.voltage[one] + quotient.voltage[two], quotient.order) == 1
        ):
            return True
    return False


@settings(max_examples=60, deadline=None)
@given(machines(), st.integers(1, 2))
def test_none_is_said_only_where_none_is(quotient, width):
    found = cp_sat_circuits.fit(quotient, 1, width, 1.0)
    assert found is not None and bool(found) == fits(quotient, width)
    for ring in found:
        assert sorted(quotient.lift(ring).tolist()) == list(range(2 * quotient.order))
