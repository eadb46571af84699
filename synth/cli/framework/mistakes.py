"""Answers to natural mistakes: other names of commands and options, and values without their option."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from synth.cli.framework.suggestions import suggest
from synth.errors import FormatError, SynthError

# Words for a command that other tools use, and the command line that does it here.
COMMANDS: Mapping[str, str] = {
    "frontier": "pareto",
    "synthesize": "pareto",
    "search": "pareto",
    "optimize": "pareto",
    "plot": "pareto --plot FILE.svg",
    "graph": "topo draw",
    "draw": "topo draw",
    "match": "topo match",
    "info": "topo show",
    "check": "verify",
    "validate": "verify",
    "convert": "export",
    "lower": "export",
    "benchmark": "bench",
    "time": "bench",
    "simulate": "run",
    "execute": "run",
    "plan": "tune",
    "html": "report",
    "library": "algorithms",
    "distance": "explain",
    "blame": "explain",
    "gpus": "list executors",
    "topologies": "list topologies",
    "machines": "list topologies",
    "collectives": "list collectives",
    "solvers": "list solvers",
}
# Other spellings of options, and those that are meant, of which the first that a command has is named.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--collective": ("--coll",),
    "--collectives": ("--coll",),
    "--topo": ("--machine",),
    "--topology": ("--topo", "--machine"),
    "--machine": ("--topo",),
    "--nodes": ("--boxes",),
    "--topology-file": ("--topo",),
    "--dump": ("--topo",),
    "--frontier": ("--from",),
    "--timeout": ("--time-limit",),
    "--limit": ("--time-limit",),
    "--max-time": ("--time-limit",),
    "--json": ("--format json",),
    "--out": ("--output",),
    "--outfile": ("--output",),
    "--outdir": ("--output",),
    "--datatype": ("--dtype",),
    "--type": ("--dtype",),
    "--iters": ("--repeats",),
    "--iterations": ("--repeats",),
    "--bytes": ("--size", "--sizes"),
    "--minbytes": ("--sizes",),
    "--maxbytes": ("--sizes",),
    "--message-size": ("--size", "--sizes"),
    "--threads": ("--jobs",),
    "--workers": ("--jobs",),
    "--processes": ("--jobs",),
    "--cores": ("--jobs",),
    "--backend": ("--executor", "--runtime"),
    "--device": ("--executor",),
    "--gpu": ("--executor",),
    "--target": ("--to", "--for"),
    "-b": ("--sizes",),
    "-c": ("--chunks", "--coll"),
    "-e": ("--sizes",),
    "-f": ("--format",),
    "-j": ("--jobs",),
    "-r": ("--rounds", "--root"),
    "-s": ("--steps", "--size"),
    "-t": ("--topo",),
}
COUNTS = ("--nranks", "--np", "--ngpus", "--num-ranks")
_EXTRA = re.compile(r"unexpected extra arguments? \((.*)\)")


def unknown_command(name: str, path: str, known: Sequence[str]) -> str:
    """Return the message for an unknown command of the group `path`, with the nearest that exist."""
    others = COMMANDS if path == "synth" else {}
    meant = others.get(name.lower())
    line = suggest("command", name, known, f"`{path} -h` shows them all")
    if meant is None and "did you mean" not in line:
        meant = next((others[near] for near in difflib.get_close_matches(name.lower(), others, 1, 0.7)), None)
    return line if meant is None else f"unknown command {name!r}; did you mean `{path} {meant}`?"


def named_option(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with the option that is meant, where the one given is a known other spelling."""
    name = error.option_name
    if error.ctx is None:
        return error
    options = {option for parameter in error.ctx.command.params for option in parameter.opts}
    for option in OPTIONS.get(name, ()):
        if option.split()[0] in options:
            return click.NoSuchOption(name, f"No such option {name!r}. Did you mean {option!r}?", ctx=error.ctx)
    return click.NoSuchOption(name, ctx=error.ctx) if name in COUNTS else error


def hint(error: click.UsageError) -> str:
    """Return how to write what the command line means, after "; "; "" where it is not known."""
    if error.ctx is None:
        return ""
    command = error.ctx.command
    options = {option for parameter in command.params for option in parameter.opts}
    arguments = [p.make_metavar(error.ctx) for p in command.params if isinstance(p, click.Argument)]
    if isinstance(error, click.NoSuchOption):
        if error.option_name in ("--topo", "--topo-file") and arguments:
            return f"; the machine is an argument: {error.ctx.command_path} {' '.join(arguments)}"
        if error.option_name == "--to" and error.ctx.info_name in ("import", "lift"):
            return "; it writes a schedule, -o s.json, of which `synth export s.json --to NAME` makes other files"
        if error.option_name == "--sizes" and "--counts" in options:
            return "; the chunk counts of a collective are --counts"
        if error.option_name in COUNTS and "--topo" in options:
            return "; the number of ranks is part of the machine's name, as in --topo ring:8 or dgx-a100*2"
        return ""
    extra = _EXTRA.search(error.message)
    if extra is None:
        return ""
    if error.ctx.info_name == "algorithms" and extra[1] in _library():
        return f"; `synth compile {extra[1]} --coll NAME --topo NAME` compiles it"
    words = [_as_option(word, options) for word in extra[1].split()]
    return f"; did you mean {' '.join(words)}?" if all(words) else ""


def meant_file(error: SynthError) -> str:
    """Return what is meant, after "; ", by a file of Python code, a dump, or a missing file with a machine's name."""
    name = error.file if isinstance(error, FormatError) else None
    if name is None:
        return ""
    if os.path.exists(name):  # False, too, for a name that is too long for a file
        compiles = f"`synth compile {name} --topo NAME -o s.json` makes a schedule of a program of the chunk language"
        if name.endswith(".py"):
            return f"; {compiles}"
        if "dump" in str(error) or not is_dump(Path(name)):
            return ""
        name = shlex.quote(name)
    elif not is_machine(name):
        return ""
    return f"; {name} is a machine: `synth pareto --topo {name} --coll allgather -o frontier.json` writes a file"


def is_dump(file: Path) -> bool:
    """Return True for a file that a tool printed about a machine, such as `nvidia-smi topo -m`."""
    from synth.topologies import importers

    try:
        importers.load(file)
    except SynthError:
        return False
    return True


def is_machine(name: str) -> bool:
    """Return True if `name` is that of a machine or a family with its sizes."""
    from synth import topologies

    try:
        topologies.topology(name)
    except SynthError:
        return False
    return True


def _library() -> set[str]:
    from synth import api

    return {one.name for one in api.library()}


def _as_option(word: str, options: set[str]) -> str:
    """Return `word` behind the option that it is the value of; "" where none is known."""
    if re.fullmatch(r"(?i)[kmgt]i?b?|b|bytes", word):
        return f"1{word.upper()} (a size has no blank)"
    from synth.model.collective import COLLECTIVES, canonical_name

    if "--coll" in options and canonical_name(word) in COLLECTIVES:
        return f"--coll {word}"
    if Path(word).is_file():
        option = next((name for name in ("--from", "--file", "--topo") if name in options), "")
        return f"{option} {word}" if option else ""
    option = next((name for name in ("--topo", "--machine") if name in options), "")
    return f"{option} {word}" if option and is_machine(word) else ""
