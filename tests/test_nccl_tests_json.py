"""The JSON of nccl-tests as measurements: read, and refused with the place."""

import json
from copy import deepcopy

import pytest

from synth.catalog.tuner import logs
from synth.errors import FormatError


def result(size, out, into, **more):
    """Return a result with times out of place and in place; None: not run."""
    ways = {"out_of_place": out, "in_place": into}
    timed = {name: time and {"time": time, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0} for name, time in ways.items()}
    return {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": -1} | timed | more


DOCUMENT = {
    "version": "2.19.0",
    "args": ["./build/all_reduce_perf", "-J", "x.json"],
    "devices": [{"rank": rank} for rank in range(4)],
    "results": [result(0, 1.0, 1.0), result(1024, 20.0, 18.0), result(2048, None, 25.0)],
}


def load(tmp_path, document, collective="allreduce", ranks=4, in_place=False):
    path = tmp_path / "x.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return logs.load(path, "nccl", collective, ranks, in_place=in_place)


@pytest.mark.parametrize(("in_place", "times"), [(False, (20e-6, 25e-6)), (True, (18e-6, 25e-6))])
def test_times_are_those_of_the_calls(tmp_path, in_place, times):
    (found,) = load(tmp_path, DOCUMENT, in_place=in_place)
    assert (found.collective, found.ranks, found.backend) == ("allreduce", 4, "nccl")
    assert [one.size for one in found.samples] == [1024, 2048]
    assert [one.seconds for one in found.samples] == pytest.approx(times)
    (without,) = load(tmp_path, DOCUMENT | {"devices": []}, ranks=8)
    assert without.ranks == 8
    times_of_cpu = {"results": [result(8, None, None, out_of_place={"cpu_time": 3})]}
    assert load(tmp_path, times_of_cpu)[0].samples[0].seconds == pytest.approx(3e-6)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("results",), [], "x.json:results: expected a list"),
        (("results", 1), 7, r"results\[1\]: expected an object"),
        (("results", 1, "size"), -4, "size is -4"),
        (("results", 1, "redop"), "none", "no test of allreduce"),
        (("results", 1, "out_of_place", "time"), -1, "no time"),
        (("results", 1, "out_of_place", "time"), True, "no time"),
        (("results", 1, "out_of_place", "nwrong"), 3, "were wrong"),
        (("args",), ["all_gather_perf"], "is of all_gather_perf"),
        (("devices",), [{}], "is of 1 ranks, expected 4"),
    ],
)
def test_malformed_documents_are_refused_with_the_place(tmp_path, path, value, text):
    document = deepcopy(DOCUMENT)
    at = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(FormatError, match=text):
        load(tmp_path, document)


def test_what_is_no_json_is_refused(tmp_path):
    with pytest.raises(FormatError, match="is not JSON"):
        load(tmp_path, '{"results": [')
