"""The grammar of topology names: ``name[:sizes][*boxes][:key=value,...]``, in either case.

dgx1      ring:8      torus:4x4      switch:8:units=12      dgx-a100*2      dgx1*2:cross=0+2+5+7

A name without sizes also takes its number of boxes after an x, which no shell expands: dgx-a100x2 is dgx-a100*2.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from synth.errors import SynthError, UsageError, unknown
from synth.model.topology import Topology
from synth.topologies.builders import Nic, TopologyBuilder
from synth.topologies.clusters import OPTIONS, cluster
from synth.topologies.families import FAMILIES
from synth.topologies.machines import MACHINES, NET_US

ALIASES = {
    "dgx1": "dgx1-v100",
    "dgx-1": "dgx1-v100",
    "ndv2": "dgx1-v100",
    "p100": "dgx1-p100",
    "dgx-2": "dgx2",
    "a100": "dgx-a100",
    "ndv4": "dgx-a100",
    "dgxa100": "dgx-a100",
    "p4de": "p4d",
    "h100": "dgx-h100",
    "ndv5": "dgx-h100",
    "p5": "dgx-h100",
    "dgxh100": "dgx-h100",
    "h200": "dgx-h200",
    "p5e": "dgx-h200",
    "p5en": "dgx-h200",
    "b200": "dgx-b200",
    "dgxh200": "dgx-h200",
    "nvl72": "gb200-nvl72",
    "gb200": "gb200-nvl72",
    "mi325x": "mi300x",
    "z52": "mi50-z52",
    "mi50": "mi50-z52",
    "mi100": "mi100-4p3l",
    "complete": "fully-connected",
    "clique": "fully-connected",
    "full": "fully-connected",
    "grid": "mesh",
    "path": "line",
    "hub": "switch",
    "hub-and-spoke": "switch",
    "cube": "hypercube",
    "crossbar": "switch",
    "fattree": "fat-tree",
}

# A plug-in's machine has one NIC of 200 Gbit/s a rank until `nic=` and `nics=` say otherwise.
PLUGIN_NIC = Nic(Fraction(25), NET_US)

_SHAPE = re.compile(r"(?P<name>[^:*]+)(:(?P<sizes>[^:*=]+))?(\*(?P<boxes>[^:*]+))?(:(?P<options>[^:*]*=[^:*]*))?")
_BOXES = re.compile(r"(?P<name>.+)x(?P<boxes>\d{1,6})")
_WITH_SIZES = re.compile(
    r"(?P<name>[^\d]*[^\d(-])[(-]?(?P<sizes>\d{1,6}(x\d{1,6}){0,7})\)?"
)  # ring8, torus-4x4, ring(8)
_SIZES = re.compile(r"\d{1,6}(x\d{1,6}){0,7}")


def topology(name: str) -> Topology:
    """Return the topology that `name` denotes in the grammar above; sizes count ranks.

    Raises UsageError: an unknown name (with the nearest ones), a size or option it does not take.
    """
    text = "*".join(part.strip() for part in name.lower().replace("_", "-").split("*"))
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise UsageError(
            f"topology {name!r} is not of the form name[:sizes][*boxes][:key=value,...], such as torus:4x4 or "
            f"dgx-a100*2"
        )
    key, count = shape["name"], shape["boxes"]
    by_x = _BOXES.fullmatch(key)
    if by_x and count is None and not _known(key) and _known(by_x["name"]):
        key, count = by_x["name"], by_x["boxes"]
    key = ALIASES.get(key, key)
    entry = MACHINES.get(key) or FAMILIES.get(key) or _plugin(key)
    full, sizes, boxes = key, (), 0

    # The sizes, the number of boxes and the options, each of which the full name has in one form.
    text = shape["sizes"]
    if text is not None:
        if not _SIZES.fullmatch(text):
            raise UsageError(
                f"topology {name!r}: sizes are numbers of ranks joined by x, such as 8 or 4x4, not {text!r}"
            )
        sizes = tuple(map(int, text.split("x")))
        full += ":" + "x".join(map(str, sizes))
    if count is not None:
        boxes = int(count) if count.isdecimal() and len(count) < 7 else 0
        if not boxes:
            raise UsageError(f"topology {name!r}: *{count} is not a number of boxes, such as *2")
        full += f"*{boxes}"
    options: dict[str, str] = {}
    for item in (shape["options"] or "").split(",") if shape["options"] else []:
        option, equals, value = item.partition("=")
        if not equals or not option or not value:
            raise UsageError(f"topology {name!r}: {item!r} is not of the form key=value")
        if option in options:
            raise UsageError(f"topology {name!r}: {option}= is given twice")
        options[option] = value
    if options:
        full += f":{shape['options']}"

    # The box with its own options, and the cluster with those of the network.
    own = {k: v for k, v in options.items() if k not in OPTIONS}
    across = {k: v for k, v in options.items() if k in OPTIONS}
    if boxes and own and key in MACHINES:
        extra = next(iter(own))
        raise UsageError(f"topology {name!r}: a cluster has no option {extra!r}; it has {', '.join(OPTIONS)}")
    box = entry.build(sizes, own)
    if across and not boxes:
        raise UsageError(f"topology {name!r}: {next(iter(across))}= is for clusters; say how many boxes, as in {key}*2")
    if boxes > 1 or across:
        return cluster(box, boxes, entry.nic, across, full)
    return replace(box, name=full)


def topology_or_none(name: str) -> Topology | None:
    """Return the machine or family of that name; None for other names and for files."""
    try:
        return topology(name)
    except SynthError:
        return None


def summaries() -> list[tuple[str, str]]:
    """Return name and summary (with the form of its sizes) of every built-in topology: machines, then families."""
    rows = []
    for name, entry in (MACHINES | FAMILIES).items():
        sizes = f"; {name}:{entry.sizes}" if entry.sizes else ""
        rows.append((name, entry.summary + sizes))
    return rows


def _known(key: str) -> bool:
    """Return True where `key` is the name or alias of a machine or family, built in or a plug-in's."""
    from synth.model.registry import table

    built_in = [*MACHINES, *FAMILIES, *ALIASES]
    return key in built_in or key in table("topologies", built_in)


def _plugin(key: str) -> TopologyBuilder:
    """The topology that an installed package adds under this name.

    Its function takes the sizes and the key=value options, and returns a `Topology`. Raises UsageError with the nearest
    names where there is none.
    """
    from inspect import signature

    from synth.model.registry import faults_of, load, table

    built_in = [*MACHINES, *FAMILIES, *ALIASES]
    added = table("topologies", built_in)
    if key not in added:
        family = _WITH_SIZES.fullmatch(key)
        if family and family["name"] in FAMILIES:
            raise UsageError(f"unknown topology {key!r}; did you mean {family['name']}:{family['sizes']}?")
        raise UsageError(unknown("topology", key, [*built_in, *added], "topologies"))
    with faults_of(added[key]):
        target = load(added[key])

    def make(sizes: tuple[int, ...], options: dict[str, str]) -> Topology:
        try:
            signature(target).bind(*sizes, **options)
        except TypeError as error:
            raise UsageError(f"topology {key} of the plug-in {added[key]}: {error}") from None
        with faults_of(added[key]):
            made = target(*sizes, **options)
        if not isinstance(made, Topology):
            raise UsageError(f"the plug-in {added[key]} must return a Topology; it returned {made!r:.100}")
        return made

    return TopologyBuilder(f"plug-in {added[key]}", make, PLUGIN_NIC)
