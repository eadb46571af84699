"""Templates of collectives on parts of a machine, such as boxes, that have a switch each which multicasts and reduces.

Inside a part one rank, the hub, fetches the sum of a chunk through the switch, or multicasts it. Between parts hubs
send to each other over links. Where it helps, some chunks take links inside a part, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from synth.model.schedule import SwitchSend
from synth.model.topology import Network, Topology
from synth.scale.composition.boxes import Boxes, Levels
from synth.scale.composition.loads import PathIndex
from synth.scale.composition.phases import Template, TemplateBuilder, merged

COLLECTIVES = ("allreduce", "broadcast", "reduce")


def switch_parts(network: Network, nodes: Sequence[int]) -> dict[tuple[int, ...], str]:
    """Return the parts of a machine, ranks in ascending order, and the name of the switch of each ("" where none is).

    The ranks at the ports of a switch that multicasts are a part; of two such switches the first counts. The others are
    parts by their boxes `nodes`, or one by one where there are none.
    """
    parts: dict[tuple[int, ...], str] = {}
    remaining = set(range(network.ranks))
    for switch in network.multicast:
        ranks = tuple(sorted(port.rank for port in switch.ports))
        if remaining.issuperset(ranks):
            parts[ranks] = switch.switch
            remaining.difference_update(ranks)
    boxes: dict[int, list[int]] = {}
    for rank in sorted(remaining):
        boxes.setdefault(nodes[rank] if nodes else rank, []).append(rank)
    parts.update(dict.fromkeys(map(tuple, boxes.values()), ""))
    return parts


def switch_templates(
    machine: Topology, parts: dict[tuple[int, ...], str], collective: str, root: int = 0
) -> list[Template]:
    """Return templates of a collective of `COLLECTIVES` for `parts`, as `switch_parts` returns them, of one unit.

    The chunks of all hubs, or of all that have a template of one name, move together.
    """
    inside = _Inside(Boxes(PathIndex(machine), tuple(parts)), tuple(parts.values()))
    if collective == "allreduce":
        listed = chain.from_iterable(_allreduce(inside, rank) for rank in range(machine.ranks))
    else:
        listed = _broadcast(inside, root)
    by_name: dict[str, list[Template]] = {}
    for template in listed:
        by_name.setdefault(template.name, []).append(template)
    whole = [merged(same, 0, len(same)) for same in by_name.values()]
    if collective == "reduce":
        return [template.reversed() for template in whole]
    return whole


class _Inside:
    """Adds the phases inside parts: through their switches, or over links as trees."""

    def __init__(self, boxes: Boxes, switches: tuple[str, ...]) -> None:
        self.boxes, self.switches = boxes, switches

    def reduce(
        self, build: TemplateBuilder, name: str, hubs: list[int], parts: list[int], switched: bool
    ) -> list[int] | None:
        """Add the phases after which the hubs of `parts` have their sums; return the last ones, None without a tree."""
        sends, levels = self._sends(hubs, parts, switched, "fetch-reduce")
        if levels is None:
            return None
        ready = build.add(f"fetch {name}", (), reduces=True, switch_sends=sends)
        return ready + build.gather(f"reduce {name}", levels)

    def copy(
        self, build: TemplateBuilder, name: str, hubs: list[int], parts: list[int], switched: bool, after: list[int]
    ) -> list[int] | None:
        """Add the phases that copy from the hubs of `parts` to their ranks; return the last ones, None without a
        tree."""
        sends, levels = self._sends(hubs, parts, switched, "multicast")
        if levels is None:
            return None
        ready = build.add(f"multicast {name}", (), after, switch_sends=sends) if sends else []
        return ready + (build.spread(f"copy {name}", levels, after) if levels else [])

    def _sends(
        self, hubs: list[int], parts: list[int], switched: bool, kind: str
    ) -> tuple[list[SwitchSend], Levels | None]:
        """Return the switch sends of parts with a switch, and the levels of the trees of the others."""
        sends, linked = [], []
        for part in parts:
            if switched and self.switches[part]:
                sends.append(SwitchSend(0, hubs[part], self.boxes.boxes[part], kind, self.switches[part]))
            else:
                linked.append(part)
        return sends, self.boxes.trees(hubs, linked)


def _allreduce(inside: _Inside, owner: int) -> Iterator[Template]:
    """Yield templates of the chunks that `owner` sums up, or of which all hubs sum up the whole."""
    boxes = inside.boxes
    home, hubs = boxes.box_of[owner], boxes.hubs(owner)
    far = [part for part in range(len(hubs)) if part != home]
    rails = boxes.tree_of_hubs(hubs, home)
    if rails is None:
        return
    joined = all(boxes.links.joins(a, b) for a in hubs for b in hubs if a != b)
    for fetches in (True, False):
        for multicasts in (True, False):
            first = "fetch" if fetches else "reduce"
            last = "multicast" if multicasts else "copy"
            build = TemplateBuilder(f"{first} inside, reduce and copy over rails, {last} inside", owner)
            near_sums = inside.reduce(build, "near", hubs, [home], fetches)
            far_sums = inside.reduce(build, "far", hubs, far, fetches)
            if near_sums is None or far_sums is None:
                continue
            # inputs alone are fetched, which all ranks of a group hold at one place of one buffer
            before = far_sums + near_sums if fetches else far_sums
            ready = near_sums + build.gather("reduce over rails", rails, before)
            inside.copy(build, "near", hubs, [home], multicasts, ready)
            arrived = build.spread("copy over rails", rails, ready)
            if inside.copy(build, "far", hubs, far, multicasts, arrived) is not None:
                yield build.template()
            if joined:
                build = TemplateBuilder(f"{first} inside, exchange over rails, {last} inside", owner)
                sums = inside.reduce(build, "all", hubs, [home, *far], fetches)
                pairs = [(a, b) for a in hubs for b in hubs]
                inside.copy(
                    build, "all", hubs, [home, *far], multicasts, build.add("exchange", pairs, sums or (), reduces=True)
                )
                yield build.template()


def _broadcast(inside: _Inside, root: int) -> Iterator[Template]:
    """Yield templates in which the part of the root gets a chunk first, then the hubs of the others, then their parts.

    Each rank beside the root is once the hub that sends to other parts. It sends to all, or to one that sends on.
    """
    boxes = inside.boxes
    home = boxes.box_of[root]
    far = [part for part in range(len(boxes.boxes)) if part != home]
    number = 0
    for hub in boxes.boxes[home]:
        hubs = boxes.hubs(hub)
        rails: list[tuple[str, Levels | None]] = [("rails", boxes.tree_of_hubs(hubs, home))]
        for first in far if len(far) > 1 else ():
            onward = [(hubs[first], hubs[part]) for part in far if part != first]
            joined = all(boxes.links.joins(a, b) for a, b in ((hub, hubs[first]), *onward))
            rails.append(("rails through one part", [[(hub, hubs[first])], onward] if joined else None))
        roots = list(hubs)
        roots[home] = root
        for name, levels in rails:
            if levels is None:
                continue
            build = TemplateBuilder(f"multicast inside, {name}, multicast inside", number)
            ready = inside.copy(build, "near", roots, [home], True, [])
            if ready is None:
                continue
            arrived = build.spread("copy over rails", levels, ready)
            if inside.copy(build, "far", hubs, far, True, arrived) is not None:
                yield build.template()
                number += 1
