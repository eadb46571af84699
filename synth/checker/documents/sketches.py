"""Check of a sketch in a frontier's document: its links are those of the machine that the rules allow, no others.

Every point was replayed on these links, so its schedule keeps the rules, and the bounds were proved for them. Rules for
sends stand in the topology, too, by which each send was replayed and each certificate read
(`synth.checker.send_rules`). This shares no code with what applies sketches. The boxes of the ranks are taken from the
document.
"""

from __future__ import annotations

from typing import Any

from synth.checker.fields import mapping, need
from synth.checker.send_rules import boxes_in_words, positions
from synth.errors import VerificationError
from synth.model.documents import json_reader

# rules for sends, which stand in the topology, too
SENDS = frozenset({"ways", "phases", "symmetric", "fixed", "fan", "relay_memory"})
_OF_BOXES = frozenset({"across", "inside", "ways", "phases"})


def check_links(entry: dict, restricted: dict, place: str) -> tuple[int, int]:
    """Check that `restricted`, a topology, is that of `entry` under its rules; return the numbers of their links.

    `entry`: the object ``sketch`` of a document. Raises VerificationError.
    """
    machine, rules = entry["topology"], mapping(entry["rules"], f"{place}.rules")
    unknown = rules.keys() - {"across", "inside", "without", *SENDS}
    need(not unknown, f"has the unknown rule {str(min(unknown, default=''))[:40]!r}", f"{place}.rules")
    nodes = _boxes(entry, place)
    need("rules" not in machine, "has rules for sends", f"{place}.topology.rules")
    of_sends: dict[str, Any] = {key: rules[key] for key in SENDS & rules.keys()}
    if restricted.get("rules") != (of_sends | {"boxes": nodes} if of_sends else None):
        raise VerificationError("are not the rules for sends of the sketch", "$.topology.rules")
    if _OF_BOXES & rules.keys():
        need(
            len(set(nodes)) < len(nodes),
            "gives each rank a box of its own, where rules for places say nothing",
            f"{place}.nodes",
        )
    crossing = [rule for rule in ("across", "ways") if rule in rules]
    if "across" in mapping(rules.get("phases", {}), f"{place}.rules.phases"):
        crossing.append("phases")
    joined = any(nodes[link[0]] != nodes[link[1]] for link in machine["links"])
    for rule in crossing:
        need(joined, f"puts no link between two boxes, of which the rule `{rule}` speaks", f"{place}.nodes")
    position = positions(nodes)
    refused = _pairs(rules.get("without", []), f"{place}.rules.without")
    near = _pairs(rules["inside"], f"{place}.rules.inside") if "inside" in rules else None
    across: Any = rules.get("across")
    far = None if across in (None, "rail") else _pairs(across, f"{place}.rules.across")
    rail = across == "rail" or "own rail" in rules.get("ways", [])

    def allowed(src: int, dst: int) -> bool:
        where = position[src], position[dst]
        if nodes[src] != nodes[dst] and rail and where[0] != where[1]:
            return False
        listed = near if nodes[src] == nodes[dst] else far
        return (src, dst) not in refused and (listed is None or where in listed)

    need(all(len(link) == 3 for link in machine["links"]), "has paths through switches", f"{place}.topology.links")
    expected = [link for link in machine["links"] if allowed(link[0], link[1])]
    if restricted["links"] != expected:
        raise VerificationError("are not the links that the rules of the sketch allow", "$.topology.links")
    limits = []
    for limit in machine["limits"]:
        links = [link for link in limit["links"] if allowed(link[0], link[1])]
        if links:
            limits.append({"links": links, "units": limit["units"]})
    if "fan" in rules:
        fan = json_reader.number(rules["fan"], f"{place}.rules.fan", 1)
        limits = _with_fan(limits, expected, entry["topology"]["ranks"], fan)
    if restricted["limits"] != limits:
        raise VerificationError("are not what the sketch leaves of the machine's limits", "$.topology.limits")
    need(restricted["unit_gbps"] == machine["unit_gbps"], "is not the machine's", "$.topology.unit_gbps")
    for key in ("wires", "multicast"):
        need(key not in machine and key not in restricted, f"has {key}", f"{place}.topology.{key}")
    return len(expected), len(machine["links"])


def _with_fan(limits: list[dict], links: list[list[int]], ranks: int, fan: int) -> list[dict]:
    """Return the limits with what `fan` links of each rank carry at most: out of each rank, then into each.

    It is a limit of its own where a rank has more links; where a limit has just these links, its units are the least.
    """
    sent: list[list[list[int]]] = [[] for _ in range(ranks)]
    got: list[list[list[int]]] = [[] for _ in range(ranks)]
    for link in links:
        sent[link[0]].append(link)
        got[link[1]].append(link)
    where: dict[tuple, list[int]] = {}
    for k, limit in enumerate(limits):
        where.setdefault(tuple(sorted(map(tuple, limit["links"]))), []).append(k)
    limits = list(limits)
    for same in (*sent, *got):
        ends = [link[:2] for link in same]
        units = sum(sorted(link[2] for link in same)[-fan:])
        held = where.get(tuple(sorted(map(tuple, ends))), [])
        for k in held:
            limits[k] = {"links": limits[k]["links"], "units": min(limits[k]["units"], units)}
        if not held and len(same) > fan:
            limits.append({"links": ends, "units": units})
    return limits


def boxes_stated(entry: dict, place: str) -> str:
    """Return a line on the boxes that the rules were judged by; "" for rules that speak of ranks alone.

    A frontier has no other record of the boxes, so they are the document's own statement.
    """
    if not _OF_BOXES & entry["rules"].keys():
        return ""
    boxes = boxes_in_words(_boxes(entry, place))
    return f"boxes of the sketch, which the document states and nothing here can check: {boxes}"


def _boxes(entry: dict, place: str) -> list[int]:
    """Return the box of each rank; one box where the document names none."""
    ranks, nodes = entry["topology"]["ranks"], list[int]()
    for node in json_reader.items(entry["nodes"], f"{place}.nodes"):
        nodes.append(json_reader.number(node, f"{place}.nodes", 0))
    need(len(nodes) in (0, ranks), f"names {len(nodes)} boxes for {ranks} ranks", f"{place}.nodes")
    return nodes or [0] * ranks


def _pairs(value: object, place: str) -> set[tuple[int, int]]:
    found = set()
    for i, pair in enumerate(json_reader.items(value, place)):
        need(len(json_reader.items(pair, f"{place}[{i}]")) == 2, "expected a pair", f"{place}[{i}]")
        a, b = pair
        found.add((json_reader.number(a, f"{place}[{i}]", 0), json_reader.number(b, f"{place}[{i}]", 0)))
    return found
