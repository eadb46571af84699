"""Names in documents from strangers go to a terminal, so they hold no control characters."""

import json

import pytest

from synth.commands import api
from synth.model.frontier import Frontier


@pytest.mark.parametrize("place", ["topology", "collective"])
def test_a_name_with_control_characters_is_refused(place):
    doc = api.frontier("ring:3", "allgather", max_steps=1).to_json()
    doc = json.loads(json.dumps(doc))
    assert Frontier.from_json(doc).points
    doc[place]["name"] = "ring\x1b]0;title\x07"
    with pytest.raises(ValueError, match="printable"):
        Frontier.from_json(doc)
