"""`synth topo`: list, show, import, match and draw topologies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit, save
from synth.commands.framework.shared import FILE, Changes, Output, Quiet, changed
from synth.commands.framework.types import names_of
from synth.commands.lists import print_names
from synth.commands.root import CONTEXT, Commands
from synth.errors import SynthError, UsageError
from synth.model.rational import show
from synth.model.topology import Topology

if TYPE_CHECKING:
    from synth.view.frontier_text import Report

COUNTED = 10_000  # groups larger than this are not counted


@click.command(
    cls=Commands, name="topo", context_settings=CONTEXT,
    lazy={name: f"synth.commands.topo:{name}_command" for name in ("list", "show", "import", "match", "draw")},
)  # fmt: skip
def topo_command() -> None:
    """List, show, import, match and draw topologies.

    \b
    Example:
      synth topo show dgx1
    """


@command(Output, brief="Show the machines and families there are.")
def list_command(options: Output) -> None:
    """Show the machines and families there are.

    \b
    Example:
      synth topo list
    """
    print_names("topologies", options)


@dataclass(frozen=True, kw_only=True)
class Named(Changes):
    """A machine by its name or file, with changes."""

    name: str = option("name", metavar="NAME|FILE", shell_complete=names_of("topologies"))


@dataclass(frozen=True, kw_only=True)
class TopoShow(Output, Named):
    """The options of `synth topo show` and `synth topo match`."""


@command(TopoShow, brief="Print a topology: links, limits, distances, symmetries.")
def show_command(options: TopoShow) -> None:
    """Print a topology: its links or their matrix, shared limits, distances, symmetries and remarks. JSON is a topology
    file.

    \b
    Examples:
      synth topo show dgx1
      synth topo show torus:4x4 --without 0-1 --format json
    """
    _print(changed(options.name, options), options)


@dataclass(frozen=True, kw_only=True)
class TopoImport(Output, Changes):
    """The options of `synth topo import`."""

    file: Path = option("file", type=FILE)
    gbps_per_link: str | None = option(
        "--gbps-per-link", default=None, metavar="GB/s",
        help="Bandwidth of an NVLink or xGMI link each way, if the dump lacks it.",
    )  # fmt: skip
    pcie_gbps: str | None = option(
        "--pcie-gbps", default=None, metavar="GB/s", help="Bandwidth of a PCIe slot each way, if the dump lacks it."
    )


@command(TopoImport, brief="Read a dump of a real machine.")
def import_command(options: TopoImport) -> None:
    """Read a dump of a real machine and print it as a topology file.

    FILE may be the output of `nvidia-smi topo -m`, `rocm-smi --showtopo` or `amd-smi topology`, an NCCL topology XML,
    SCCL's JSON, or a topology file. What it does not
    say is assumed, and noted.

    \b
    Example:
      nvidia-smi topo -m > topo.txt && synth topo import topo.txt -o machine.json
    """
    from synth.topologies import importers

    _print(changed(importers.load(options.file, options.gbps_per_link, options.pcie_gbps), options), options)


def _print(topology: Topology, options: Output) -> None:
    from synth.model import symmetry
    from synth.topologies.topology_files import dump
    from synth.view.machine import topology_report

    # The symmetries take a moment, so JSON goes without them.
    def table() -> Sequence[Report]:
        generators = symmetry.generators(topology.network())
        group = symmetry.closure([g.ranks for g in generators], COUNTED)
        size = f"more than {COUNTED}" if group is None else str(max(1, len(group)))
        return topology_report(topology, (len(generators), size))

    emit(lambda: dump(topology), table, options)


@command(TopoShow, brief="Find the known machine that equals this one.")
def match_command(options: TopoShow) -> None:
    """Find the known machine that a topology is, up to the names of its ranks, and print the map between the two.

    \b
    Example:
      synth topo match topo.txt
    """
    from synth.topologies.match import match as known_machine
    from synth.view.machine import match_report

    topology = changed(options.name, options)
    machine = known_machine(topology)
    if machine is None:
        said = "is none of the known machines and families; it needs no name: --topo takes its file as it is"
        raise SynthError(f"{options.name} {said}")
    document = {
        "schema": "synth.match/1", "topology": topology.name, "machine": machine.machine, "ranks": list(machine.ranks),
        "labels": list(machine.labels), "scale": show(machine.scale), "same": list(machine.same),
        "fast_only": machine.fast_only,
    }  # fmt: skip
    report = match_report(machine.describe(), topology.name, machine.machine, machine.labels)
    emit(lambda: document, lambda: report, options)


@dataclass(frozen=True, kw_only=True)
class Draw(Quiet, Named):
    """The options of `synth topo draw`."""

    output: str | None = option(
        "-o", "--output", default=None, metavar="FILE.svg", help="The drawing's file; by default, and with -, stdout."
    )


@command(Draw, brief="Draw a topology as SVG.")
def draw_command(options: Draw) -> None:
    """Draw a topology as SVG: links as wide as they are fast, coloured by kind.

    \b
    Example:
      synth topo draw dgx1 -o dgx1.svg
    """
    from synth.view.drawings.topology_svg import topology_svg

    output = options.output
    if output not in (None, "-") and Path(output).suffix.lower() != ".svg":
        raise UsageError(f"drawings are SVG; call the file {Path(output).with_suffix('.svg')} instead of {output}")
    drawing = topology_svg(changed(options.name, options))
    if output in (None, "-"):
        click.echo(drawing, nl=False)
    else:
        save(output, drawing)
