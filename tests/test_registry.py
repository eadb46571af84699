"""Names, plug-ins and what is not installed."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint

import pytest

from synth.errors import MissingDependencyError, SynthError, UsageError
from synth.model import registry

BUILT_IN = {"step": "json:loads", "path": "json:dumps"}


@pytest.fixture
def installed(monkeypatch):
    """Makes these (name, value) pairs the installed plug-ins."""

    def install(*pairs):
        points = [EntryPoint(name, value, registry.GROUP) for name, value in pairs]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == registry.GROUP else [])
        registry.plugins.cache_clear()

    yield install
    registry.plugins.cache_clear()


def test_built_in_names_in_any_case(installed):
    import json

    installed()
    assert registry.find("encodings", "STEP", BUILT_IN) is json.loads


def test_an_unknown_name_gets_the_nearest(installed):
    installed()
    with pytest.raises(UsageError, match=r"unknown encoding 'stp'; did you mean step\?"):
        registry.find("encodings", "stp", BUILT_IN)


def test_a_plug_in_is_found_and_loaded_only_when_asked_for(installed):
    installed(("encodings.mine", "no.such.module:thing"), ("solvers.mine", "json:loads"))
    assert registry.table("encodings", BUILT_IN) == {"mine": "no.such.module:thing"}
    with pytest.raises(SynthError, match=r"no\.such\.module:thing"):
        registry.find("encodings", "mine", BUILT_IN)


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([("encodings.Step", "a:b")], "takes the name of the built-in encoding 'step'"),
        ([("encodings.x", "a:b"), ("encodings.X", "c:d")], "two plug-ins"),
        ([("mine", "a:b")], "must be called one of"),
        ([("widgets.mine", "a:b")], "must be called one of"),
    ],
)
def test_clashes_and_malformed_names_are_errors(installed, pairs, says):
    installed(*pairs)
    with pytest.raises(SynthError, match=says):
        registry.find("encodings", "step", BUILT_IN)


def test_what_is_not_installed_is_said_with_the_command():
    assert registry.installed("json")
    assert not registry.installed("no_such_library.part")
    with pytest.raises(
        MissingDependencyError, match="a picture needs no_such_library, which is not installed: pip install it"
    ):
        registry.need("no_such_library", "a picture", "pip install it")
    assert registry.need("json", "text", "never").loads("1") == 1
