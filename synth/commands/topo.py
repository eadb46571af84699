"""`synth topo`: list, show, import, match and draw topologies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.commands.framework.completion import names_of
from synth.commands.framework.options import FILE, change_options, changes, output_options, quiet_option
from synth.commands.framework.output import emit, save
from synth.commands.lists import lists
from synth.commands.root import CONTEXT, Commands
from synth.errors import SynthError, UsageError
from synth.model.rational import show
from synth.model.topology import Topology

COUNTED = 10_000  # groups larger than this are not counted


@click.command(
    cls=Commands,
    context_settings=CONTEXT,
    lazy={name: f"synth.commands.topo:{attr}" for name, attr in
          {"list": "list_", "show": "show_", "import": "import_", "match": "match", "draw": "draw"}.items()},
)  # fmt: skip
def topo() -> None:
    """List, show, import, match and draw topologies.

    \b
    Example:
      synth topo show dgx1
    """


@click.command("list", context_settings=CONTEXT)
@output_options
@click.pass_context
def list_(ctx: click.Context, **flags: Any) -> None:
    """Show the machines and families there are.

    \b
    Example:
      synth topo list
    """
    ctx.invoke(lists, kind="topologies", **flags)


@click.command("show", context_settings=CONTEXT, short_help="Print a topology: links, limits, distances, symmetries.")
@click.argument("name", metavar="NAME|FILE", shell_complete=names_of("topologies"))
@change_options
@output_options
def show_(name: str, **flags: Any) -> None:
    """Print a topology: its links or their matrix, shared limits, distances, symmetries and remarks. JSON is a topology
    file.

    \b
    Examples:
      synth topo show dgx1
      synth topo show torus:4x4 --without 0-1 --format json
    """
    from synth.commands import api
    from synth.topologies.topology_files import dump
    from synth.view.machine import topology_report
    from synth.view.tables import print_reports

    topology = api.topology(name, **changes(flags))
    emit(
        lambda: dump(topology),
        lambda: print_reports(topology_report(topology, _symmetries(topology))),
        flags["output"],
        flags["form"],
    )


@click.command("import", context_settings=CONTEXT, short_help="Read a dump of a real machine.")
@click.argument("file", type=FILE)
@click.option(
    "--gbps-per-link", metavar="GB/s", help="Bandwidth of an NVLink or xGMI link each way, if the dump lacks it."
)
@click.option("--pcie-gbps", metavar="GB/s", help="Bandwidth of a PCIe slot each way, if the dump lacks it.")
@change_options
@output_options
def import_(file: Path, gbps_per_link: str | None, pcie_gbps: str | None, **flags: Any) -> None:
    """Read a dump of a real machine and print it as a topology file.

    FILE may be the output of `nvidia-smi topo -m`, `rocm-smi --showtopo` or `amd-smi topology`, an NCCL topology XML,
    SCCL's JSON, or a topology file. What it does not
    say is assumed, and noted.

    \b
    Example:
      nvidia-smi topo -m > topo.txt && synth topo import topo.txt -o machine.json
    """
    from synth.commands import api
    from synth.topologies import importers
    from synth.topologies.topology_files import dump
    from synth.view.machine import topology_report
    from synth.view.tables import print_reports

    topology = api.topology(importers.load(file, gbps_per_link, pcie_gbps), **changes(flags))
    emit(
        lambda: dump(topology),
        lambda: print_reports(topology_report(topology, _symmetries(topology))),
        flags["output"],
        flags["form"],
    )


@click.command(context_settings=CONTEXT, short_help="Find the known machine that equals this one.")
@click.argument("name", metavar="NAME|FILE", shell_complete=names_of("topologies"))
@change_options
@output_options
def match(name: str, **flags: Any) -> None:
    """Find the known machine that a topology is, up to the names of its ranks, and print the map between the two.

    \b
    Example:
      synth topo match topo.txt
    """
    from synth.commands import api
    from synth.topologies.match import match as known_machine
    from synth.view.machine import match_report
    from synth.view.tables import print_report

    topology = api.topology(name, **changes(flags))
    machine = known_machine(topology)
    if machine is None:
        raise SynthError(
            f"{name} is none of the known machines and families; it needs no name: --topo takes its file as it is"
        )
    document = {
        "schema": "synth.match/1", "topology": topology.name, "machine": machine.machine, "ranks": list(machine.ranks),
        "labels": list(machine.labels), "scale": show(machine.scale), "same": list(machine.same),
        "missing": [list(pair) for pair in machine.missing], "fast_only": machine.fast_only,
    }  # fmt: skip
    report = match_report(machine.describe(), topology.name, machine.machine, machine.labels)
    emit(lambda: document, lambda: print_report(report), flags["output"], flags["form"])


@click.command(context_settings=CONTEXT, short_help="Draw a topology as SVG.")
@click.argument("name", metavar="NAME|FILE", shell_complete=names_of("topologies"))
@change_options
@click.option("-o", "--output", metavar="FILE.svg", help="The drawing's file; by default, and with -, stdout.")
@quiet_option
def draw(name: str, output: str | None, **flags: Any) -> None:
    """Draw a topology as SVG: links as wide as they are fast, coloured by kind.

    \b
    Example:
      synth topo draw dgx1 -o dgx1.svg
    """
    from synth.commands import api
    from synth.view.topology_svg import topology_svg

    if output not in (None, "-") and Path(output).suffix.lower() != ".svg":
        raise UsageError(f"drawings are SVG; call the file {Path(output).with_suffix('.svg')} instead of {output}")
    drawing = topology_svg(api.topology(name, **changes(flags)))
    if output in (None, "-"):
        click.echo(drawing, nl=False)
    else:
        save(output, drawing)


def _symmetries(topology: Topology) -> tuple[int, str]:
    from synth.model import symmetry

    generators = symmetry.generators(topology.network())
    group = symmetry.closure([g.ranks for g in generators], COUNTED)
    return len(generators), f"more than {COUNTED}" if group is None else str(max(1, len(group)))
