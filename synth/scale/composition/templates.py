"""Templates of collectives on boxes: inside a box, between boxes over the hubs of a block, inside again.

A *block* is a share of the data with its own hubs, one rank in each box. In an allgather it is the unit of a rank, in
an allreduce the part that a rank sums up or distributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

from synth.model.scale_collectives import ROOTED
from synth.scale.composition.boxes import Boxes, Levels
from synth.scale.composition.phases import Template, TemplateBuilder, merged

# A unit of data and the blocks whose chunks move together; each of the unit's chunks belongs to one of its groups.
Group = tuple[int, tuple[int, ...]]
# A message: its unit, its source and its destination.
Message = tuple[int, int, int]
_FORWARD = {"reduce-scatter": "allgather", "reduce": "broadcast"}


def block_groups(collective: str, blocks: Sequence[int], symmetric: bool, most_separate: int) -> list[Group]:
    """Return the groups of blocks that have templates of their own: each block, or all together if they are more than
    `most_separate`.

    The blocks of an allreduce without symmetries divide one unit between them, as do those of a rooted collective.
    """
    if collective in ROOTED:
        return [(0, (0,))]
    if len(blocks) > most_separate:
        return [(0, tuple(blocks))]
    if collective == "allreduce" and not symmetric:
        return [(0, (block,)) for block in blocks]
    return [(unit, (block,)) for unit, block in enumerate(blocks)]


def templates(boxes: Boxes, collective: str, root: int, groups: Sequence[Group], running: bool) -> list[Template]:
    """Return the templates of a collective for groups of blocks, all images of which make the collective.

    With `running` all blocks divide one unit between them. Reductions are built as their time reversals, on boxes whose
    links are `flipped`, and returned reversed.
    """
    if collective in _FORWARD:
        return [template.reversed() for template in templates(boxes, _FORWARD[collective], root, groups, running)]
    if collective == "alltoall":
        ranks = range(boxes.links.topology.ranks)
        sources = [block for _, blocks in groups for block in blocks]
        messages = [(src * len(ranks) + dst, src, dst) for src in sources for dst in ranks if src != dst]
        return message_templates(boxes, messages)
    if collective == "broadcast":
        return [merged(same, 0, len(same)) for same in _by_name(_broadcast(boxes, root)).values()]
    make = {"allgather": _allgather, "allreduce": _allreduce}[collective]
    cut_off = any(_Block(boxes, block).rails is None for _, blocks in groups for block in blocks)
    detours = range(1)
    if cut_off and not running:  # where blocks divide one unit, those without rails need no data
        detours = range(1, max(map(len, boxes.boxes)))
    result = []
    for unit, blocks in groups:
        parts: list[Template] = []
        for block, detour in product(blocks, detours):
            suffix = f", detour {detour}" if detour else ""
            for template in make(_Block(boxes, block, detour)):
                if _has_paths(template, boxes):
                    parts.append(replace(template, name=template.name + suffix))
        if len(blocks) == 1:  # most blocks take no detour
            parts = list({template.phases: template for template in parts}.values())
        for same in _by_name(parts).values():
            if running or len(same) == len(blocks):
                result.append(merged(same, unit, len(same) if running else 1))
    return result


def _has_paths(template: Template, boxes: Boxes) -> bool:
    """Return True if a path leads along each reduction: one against a tree's edge has none where links are one-way."""
    sums = [phase for phase in template.phases if phase.reduces]
    return all(boxes.links.joins(src, dst) for phase in sums for _, src, dst in phase.sends)


def _by_name(templates: Iterable[Template]) -> dict[str, list[Template]]:
    by_name: dict[str, list[Template]] = {}
    for template in templates:
        by_name.setdefault(template.name, []).append(template)
    return by_name


class _Block:
    """One block: its hubs, the trees inside the boxes from them (None where there is none), and those between them.

    The hub in the home box is the block's rank. Where its hubs are not joined, because a NIC has failed, it is another
    rank of the box whose hubs are: number `detour` from 1 on, counted from the block's rank. `inside` are the levels in
    the home box from the block's rank, `outside` those in the others. `rails` are the
    levels of the tree between hubs.
    """

    def __init__(self, boxes: Boxes, block: int, detour: int = 0) -> None:
        self.boxes, self.block = boxes, block
        self.home = boxes.box_of[block]
        self.hub = self._hub(detour) if detour else block
        self.hubs = boxes.hubs(self.hub)
        others = [b for b in range(len(boxes.boxes)) if b != self.home]
        self.inside = boxes.tree(self.home, block)
        self.outside = boxes.trees(self.hubs, others)
        self.rails = boxes.tree_of_hubs(self.hubs, self.home)
        self.others = [rank for rank in range(boxes.links.topology.ranks) if rank != block]

    def _hub(self, detour: int) -> int:
        """Return the block's rank where its hubs are joined, else another rank of its box."""
        box = self.boxes.boxes[self.home]
        place = box.index(self.block)
        turned = [*box[place:], *box[:place]]
        joined = [rank for rank in turned if self.boxes.tree_of_hubs(self.boxes.hubs(rank), self.home) is not None]
        if self.block in joined or not joined:
            return self.block
        return joined[(detour - 1) % len(joined)]

    def everywhere(self) -> Levels | None:
        """Return the levels inside all boxes together, from the hubs."""
        return self.boxes.trees(self.hubs, list(range(len(self.boxes.boxes))))

    def joined(self, ranks: Sequence[int]) -> bool:
        """Return True if a link leads from each of these ranks to each other."""
        return all(self.boxes.links.joins(a, b) for a in ranks for b in ranks if a != b)

    def spread_over_rails(self, build: TemplateBuilder, after: Sequence[int] = ()) -> bool:
        """Add copies from the block's rank to all others over a tree between hubs; False where a tree is missing."""
        if self.inside is None or self.outside is None or self.rails is None:
            return False
        inside = build.spread("inside", self.inside, after)
        start = after if self.hub == self.block else inside
        build.spread("far boxes", self.outside, build.spread("rails", self.rails, start))
        return True

    def spread_directly(self, build: TemplateBuilder, after: Sequence[int] = ()) -> bool:
        """Add copies from the block's rank to all others in one step; False where a link is missing."""
        if not all(self.boxes.links.joins(self.block, rank) for rank in self.others):
            return False
        build.add("direct", [(self.block, rank) for rank in self.others], after)
        return True

    def reduce_over_rails(self, build: TemplateBuilder) -> list[int] | None:
        """Add reductions from all others to the block's rank over a tree between hubs; return the last ones."""
        if self.inside is None or self.outside is None or self.rails is None:
            return None
        far = build.gather("reduce far boxes", self.outside)
        ready = build.gather("reduce over rails", self.rails, far)
        if self.hub == self.block:
            return ready + build.gather("reduce inside", self.inside)
        return build.gather("reduce inside", self.inside, ready)

    def reduce_directly(self, build: TemplateBuilder) -> list[int] | None:
        """Add reductions from all others to the block's rank in one step."""
        if not all(self.boxes.links.joins(rank, self.block) for rank in self.others):
            return None
        return build.add("reduce directly", [(rank, self.block) for rank in self.others], reduces=True)


def _allgather(mine: _Block) -> Iterator[Template]:
    for name, spread in (("over rails, then inside", mine.spread_over_rails), ("direct", mine.spread_directly)):
        build = TemplateBuilder(name, mine.block)
        if spread(build):
            yield build.template()


def _allreduce(mine: _Block) -> Iterator[Template]:
    block = mine.block
    trees = mine.everywhere()
    if trees is not None and mine.joined(mine.hubs):
        build = TemplateBuilder("reduce-scatter, exchange over rails, allgather", block)
        exchange = [(a, b) for a in mine.hubs for b in mine.hubs]
        ready = build.add("exchange", exchange, build.gather("reduce inside", trees), reduces=True)
        build.spread("inside", trees, ready)
        yield build.template()
    reductions = {"two-level": mine.reduce_over_rails, "direct": mine.reduce_directly}
    copies = {"two-level": mine.spread_over_rails, "direct": mine.spread_directly}
    for (first, reduce), (last, spread) in product(reductions.items(), copies.items()):
        build = TemplateBuilder(f"{first} reduce-scatter, {last} allgather", block)
        ready = reduce(build)
        if ready is not None and spread(build, ready):
            yield build.template()
    everyone = range(mine.boxes.links.topology.ranks)
    if mine.joined(everyone):
        build = TemplateBuilder("direct exchange", block)
        build.add("exchange", [(a, b) for a in everyone for b in everyone], reduces=True)
        yield build.template()


def _broadcast(boxes: Boxes, root: int) -> Iterator[Template]:
    """Yield templates whose hub in the root's box, and the box that passes data on to others, take all values."""
    home = boxes.box_of[root]
    others = [b for b in range(len(boxes.boxes)) if b != home]
    number = 0
    for hub in boxes.boxes[home]:
        mine = _Block(boxes, hub)
        inside = boxes.tree(home, hub, () if hub == root else (root,))
        if inside is None or mine.outside is None or (hub != root and not boxes.links.joins(root, hub)):
            continue
        start = "from the root" if hub == root else "over another rank"
        between = [("then rails", mine.rails)]
        if len(others) > 1:
            between += [("rails through one box", _through(boxes, mine.hubs, home, first)) for first in others]
        for name, tree in between:
            if tree is None:
                continue
            build = TemplateBuilder(f"{start}, {name}", number)
            ready = build.add("to the hub", [(root, hub)])
            build.spread("inside", inside, ready)
            build.spread("far boxes", mine.outside, build.spread("rails", tree, ready))
            yield build.template()
            number += 1


def _through(boxes: Boxes, hubs: list[int], home: int, first: int) -> Levels | None:
    """Return a tree of hubs in which one box receives from the home box and sends to all others."""
    rest = [hub for b, hub in enumerate(hubs) if b not in (home, first)]
    edges = [(hubs[home], hubs[first]), *((hubs[first], hub) for hub in rest)]
    if not all(boxes.links.joins(a, b) for a, b in edges):
        return None
    return [edges[:1], edges[1:]]


def message_templates(boxes: Boxes, messages: Iterable[Message], *, all_rails: bool = False) -> list[Template]:
    """Return templates for classes of messages: those whose paths have equal names and lengths.

    With `all_rails` a message between boxes may take the rails of all ranks of its box, one inside a box may go over
    any other rank of it, and a class has paths of equal names. Empty where a message has no path.
    """
    classes: dict[tuple[str | int, ...], list[dict[str, Template]]] = {}
    for block, src, dst in messages:
        mine: dict[str, Template] = {}
        for name, path in _paths(boxes, src, dst, all_rails).items():
            build = TemplateBuilder(name, block)
            build.spread(name, [[hop] for hop in pairwise(path)])
            mine[name] = build.template()
        if not mine:
            return []
        key: tuple[str | int, ...] = tuple(mine)
        if not all_rails:
            key += tuple(len(template.phases) for template in mine.values())
        classes.setdefault(key, []).append(mine)
    result = []
    for unit, members in enumerate(classes.values()):
        for name in members[0]:
            result.append(merged([mine[name] for mine in members], unit))
    return result


def _paths(boxes: Boxes, src: int, dst: int, all_rails: bool) -> dict[str, list[int]]:
    """Return the paths of a pair of ranks by their names: the link that joins them, or through the boxes' hubs."""
    here, there = boxes.box_of[src], boxes.box_of[dst]
    paths: dict[str, list[int]] = {}
    if boxes.links.joins(src, dst):
        paths["direct"] = [src, dst]
    elif here == there:
        inside = boxes.path(here, src, dst)
        if inside:
            paths["inside"] = inside
    rails = []
    if here != there:
        rails.append(("inside, then rails", boxes.hubs(dst)[here], dst))
        rails.append(("rails, then inside", src, boxes.hubs(src)[there]))
    if all_rails:
        home = boxes.boxes[here]
        for further in range(1, len(home)):
            out = home[(home.index(src) + further) % len(home)]
            name = "rails" if here != there else "inside over the rank"
            rails.append((f"{name} {further} further", out, boxes.hubs(out)[there]))
    for name, out, into in rails:
        first, last = boxes.path(here, src, out), boxes.path(there, into, dst)
        path = [*first, *last] if out != into else [*first, *last[1:]]
        joined = out == into or boxes.links.joins(out, into)
        simple = len(set(path)) == len(path)
        if first and last and joined and simple and path not in paths.values():
            paths[name] = path
    return paths
