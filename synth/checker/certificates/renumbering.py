"""The same problem with other numbers of ranks, links, limits and units: a bound of one is a bound of the other."""

from __future__ import annotations

from synth.checker.fields import mapping, need, permutation


def renumbered(topology: dict, collective: dict, numbering: dict) -> tuple[dict, dict]:
    """Return both documents with ranks, links, limits and units renumbered and switches renamed.

    Rank r becomes ``numbering["ranks"][r]``, and so on; ``numbering["switches"]`` maps names to names.

    Raises VerificationError for anything but permutations; LookupError, TypeError and ValueError on malformed
    documents.
    """
    place = "numbering"
    wrong = mapping(numbering, place).keys() ^ {"ranks", "links", "limits", "units", "switches"}
    need(not wrong, f"{sorted(map(str, wrong))[:1]} is missing or unknown", place)
    ranks = permutation(numbering["ranks"], topology["ranks"], f"{place}.ranks")
    links = permutation(numbering["links"], len(topology["links"]), f"{place}.links")
    limits = permutation(numbering["limits"], len(topology["limits"]), f"{place}.limits")
    units = permutation(numbering["units"], collective["chunks"], f"{place}.units")
    names = mapping(numbering["switches"], f"{place}.switches")
    need(all(type(name) is str for name in names.values()), "expected a name for each switch", f"{place}.switches")
    need(len(set(names.values())) == len(names), "gives two switches one name", f"{place}.switches")

    def renamed(path: list) -> list:
        return [names[name] for name in path]

    moved: list = [None] * len(links)
    for (u, v, width, *way), i in zip(topology["links"], links, strict=True):
        moved[i] = [ranks[u], ranks[v], width, *map(renamed, way)]
    shared: list = [None] * len(limits)
    for limit, k in zip(topology["limits"], limits, strict=True):
        shared[k] = {
            "links": [[ranks[u], ranks[v], *map(renamed, way)] for u, v, *way in limit["links"]],
            "units": limit["units"],
        }
    ported = []
    for switch in topology.get("multicast", []):
        ports = []
        for rank, up, down in switch["ports"]:
            ports.append([ranks[rank], *(list(map(limits.__getitem__, side)) for side in (up, down))])
        ported.append(switch | {"ports": ports})
    pre = sorted([units[u], ranks[r]] for u, r in collective["pre"])
    post = []
    for u, r, *wants in collective["post"]:
        post.append([units[u], ranks[r], *[sorted(map(ranks.__getitem__, want)) for want in wants]])
    post.sort()
    machine = topology | {"links": moved, "limits": shared} | ({"multicast": ported} if ported else {})
    machine.pop("rules", None)  # what holds for all sends holds for those that rules allow
    return machine, collective | {"pre": pre, "post": post}
