"""docs/proofs.md says by which function each claim of a document is checked: each is there, and nothing is without
one."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from synth.checker.certificates import cuts, throughput_cuts
from synth.checker.documents import exact_frontier

PAGE = Path(__file__).resolve().parent.parent / "docs" / "proofs.md"
# Kinds that a checker of their own reads.
OTHERS = ("allreduce-parts", "alltoall-lengths")


def rows() -> list[list[str]]:
    """The cells of the table "document | claim | checked by"."""
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("| document | claim | checked by |\n|---|---|---|\n")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def functions() -> list[str]:
    return sorted({name for row in rows() for name in re.findall(r"`([^`]+)`", row[-1])})


def subjects() -> set[str]:
    return {name for row in rows() for name in re.findall(r"`([^`]+)`", row[0])}


def test_every_row_has_a_claim_and_a_function() -> None:
    assert len(rows()) > 20
    for row in rows():
        assert len(row) == 3 and row[1] and re.search(r"`synth\.", row[2]), row


@pytest.mark.parametrize("name", functions())
def test_the_function_is_there_and_of_the_checker(name: str) -> None:
    words = name.split(".")
    assert words[:2] == ["synth", "checker"]
    for size in range(len(words) - 1, 0, -1):
        try:
            found: object = import_module(".".join(words[:size]))
        except ModuleNotFoundError:
            continue
        for word in words[size:]:
            found = getattr(found, word)
        assert callable(found)
        return
    pytest.fail(f"{name} is in no module")


@pytest.mark.parametrize("schema", [*exact_frontier.SCHEMAS, "synth.bulk/1"])
def test_every_schema_that_is_verified_has_a_row(schema: str) -> None:
    assert schema in subjects()


@pytest.mark.parametrize("kind", [*cuts.KEYS, *throughput_cuts.KEYS, *OTHERS])
def test_every_kind_of_certificate_has_a_row(kind: str) -> None:
    assert kind in subjects()


@pytest.mark.parametrize("schema", ["synth.frontier/1", "synth.schedule/1"])
def test_what_is_assumed_is_said(schema: str) -> None:
    doc = {"schema": schema, "topology": {"limits": [], "multicast": [{"switch": "nvs"}]}}
    assert schema in exact_frontier.SCHEMAS
    said = exact_frontier.assumed(doc)
    assert said.startswith("assumed, not checked: ") and "nvs" in said
