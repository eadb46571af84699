"""The JSON of nccl-tests as measurements: read, and refused with the place."""

import json
from copy import deepcopy

import nccl_tests_output as tool
import pytest
from nccl_tests_output import Run

from synth.catalog.tuner import nccl_tests as logs
from synth.errors import FormatError

RUN = Run("allreduce", 4, {1024: (20.0, 18.0), 2048: (None, 25.0), 1 << 22: (90.5, 91.25)}, root=0)
DOCUMENT = tool.document(RUN)


def load(tmp_path, document, collective="allreduce", ranks=4, in_place=False):
    path = tmp_path / "x.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return logs.load(path, "nccl", collective, ranks, in_place=in_place)


@pytest.mark.parametrize(
    ("in_place", "times"), [(False, (20e-6, 25e-6, 90.5e-6)), (True, (18e-6, 25e-6, 91.25e-6))]
)  # fmt: skip
def test_times_are_those_of_the_calls(tmp_path, in_place, times):
    (found,) = load(tmp_path, DOCUMENT, in_place=in_place)
    assert (found.collective, found.ranks, found.backend) == ("allreduce", 4, "nccl")
    assert [one.size for one in found.samples] == [1024, 2048, 1 << 22]
    assert [one.seconds for one in found.samples] == pytest.approx(times)


def test_ranks_are_those_of_all_processes(tmp_path):
    """Devices stand in `config`, and only the first of each process is listed."""
    for ranks, each in ((8, 8), (16, 8), (8, 1), (8, 2)):
        run = Run("allgather", ranks, {1 << 20: (90.0, 91.0)}, each=each)
        assert load(tmp_path, tool.document(run), "allgather", None)[0].ranks == ranks
        with pytest.raises(FormatError, match=f"is of {ranks} ranks, expected 4"):
            load(tmp_path, tool.document(run), "allgather", 4)
    with pytest.raises(FormatError, match="lists 2 ranks, up to 7"):
        broken = tool.document(Run("allgather", 2, {1 << 20: (90.0, 91.0)}))
        broken["config"]["devices"][1]["rank"] = 7
        load(tmp_path, broken, "allgather", 2)


@pytest.mark.parametrize("collective", tool.TESTS)
def test_text_and_json_of_one_run_agree(tmp_path, collective):
    """CPU time (-C 1) is not the time of the collective: both readers refuse it."""
    run = Run(collective, 8, {1 << 20: (38.1, 38.48), 1 << 23: (101.5, 102.52)}, root=3)
    for options in ("", "c", "C"):
        found = []
        for name, content in (
            ("x.json", json.dumps(tool.document(run._replace(options=options)))),
            ("x.txt", tool.text(run._replace(options=options))),
        ):
            path = tmp_path / name
            path.write_text(content)
            if options == "C":
                with pytest.raises(FormatError, match=r"no column 'time'|no row with a time"):
                    logs.load(path, "nccl", collective, 8)
            else:
                found.append(logs.load(path, "nccl", collective, None)[0])
        for one in found:
            assert (one.collective, one.ranks, one.samples) == (collective, 8, found[0].samples)
    for other in tool.TESTS:
        if other != collective:
            with pytest.raises(FormatError):
                load(tmp_path, tool.document(run) | {"args": [], "config": {}}, other, 5)
            with pytest.raises(FormatError, match="is of"):
                load(tmp_path, tool.document(run), other, 8)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("results",), [], "x.json:results: expected a list"),
        (("results", 1), 7, "is no document of nccl-tests"),
        (("results", 1, "size"), -4, "are no size"),
        (("results", 1, "redop"), "none", "no test of allreduce"),
        (("results", 0, "out_of_place", "time"), -1, "are no size, time|busbw is"),
        (("results", 0, "out_of_place", "time"), 0, "are no size, time|busbw is"),
        (("results", 0, "out_of_place", "time"), True, "are no size, time|busbw is"),
        (("results", 0, "out_of_place", "time"), 10**400, "are no size, time|busbw is"),
        (("results", 0, "out_of_place", "time"), 30.0, "is that of 1024 bytes in 30 µs"),
        (("results", 2, "out_of_place", "bus_bw"), 46.3, "busbw is 46.3 GB/s"),
        (("results", 0, "size"), 1324, "busbw is"),
        (("results", 0, "out_of_place", "nwrong"), 3, "were wrong"),
        (("args",), ["all_gather_perf"], "is of all_gather_perf"),
        (("config", "devices"), [{"rank": 0}], "is of 1 ranks, expected 4"),
        (("config", "devices"), [{}], "is no document of nccl-tests"),
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
