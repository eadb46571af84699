"""A document's certificate must be about the document's own collective and root, not only be right about something."""

from pathlib import Path

import pytest

from synth import api
from synth.checker.documents import scale_frontier
from synth.errors import VerificationError
from synth.scale import search
from synth.topologies import topology

MACHINE = topology("mesh:3x3")


@pytest.fixture(scope="module")
def found():
    names = ("allgather", "broadcast", "allreduce", "alltoall")
    return {name: search.bound(MACHINE, name) for name in names} | {"from 4": search.bound(MACHINE, "broadcast", 4)}


def checked(claim, proof) -> list[str]:
    doc = api.frontier_document(claim)
    doc["bound"] = {"value": str(proof.bound), "certificate": proof.certificate}
    return scale_frontier.document(doc, Path(), lambda: MACHINE)


@pytest.mark.parametrize("claim", ["allgather", "broadcast", "allreduce", "alltoall"])
@pytest.mark.parametrize("proof", ["allgather", "broadcast", "allreduce", "alltoall"])
def test_of_its_own_collective(found, claim, proof):
    if claim == proof:
        assert f"no {claim} on" in checked(found[claim], found[proof])[0]
    else:
        with pytest.raises(VerificationError, match="another collective"):
            checked(found[claim], found[proof])


def test_of_its_own_root(found):
    assert checked(found["from 4"], found["from 4"])
    with pytest.raises(VerificationError, match="another root"):
        checked(found["from 4"], found["broadcast"])
