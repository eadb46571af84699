"""Certificates in words: each claim and its kind of certificate, in one or two sentences; docs/proofs.md has the
arguments."""

from __future__ import annotations

import json

from synth.model.frontier import Frontier, LowerBound, Open, Point
from synth.model.number_text import number
from synth.model.rational import counted, show
from synth.view.frontier_text import WHY, fraction_text

ASSUMED = (
    "Data moves in whole chunks. A rank forwards only what it holds, or has summed; there is no coding.",
    "Steps are synchronous: all sends of a step read the state before it. A step of r rounds moves at most r times "
    "a link's units,"
    " and the links of a limit together at most r times its units.",
    "There is no multicast and no reduction inside switches, unless a title says so; hardware that has them (NVLS, "
    "SHARP) can beat these bounds.",
    "The links and limits are those of the document. Whether the machine has them is not a matter of proof.",
    "Predicted times of points are of synchronous steps, on bare links without a launch: steps · latency + rounds per "
    "chunk · bytes of a chunk / bandwidth of a unit. Times of plans are of programs.",
)

_HOW = {
    "distance": "Distances in the document's links are counted: what some rank needs is so many links away.",
    "unreachable": "No link leaves the ranks that the data can reach, and a rank that needs it is not among them.",
    "static-cuts": "Prices for links and limits, and cuts that every chunk must cross; the prices of what it must "
    "cross add up to the"
    " bound.",
    "deadline-cuts": "Prices for links and limits at each step, and cuts with deadlines that every chunk must "
    "cross; the prices of"
    " what it must cross add up to the bound.",
    "allreduce-partition": "A partition of the ranks: each chunk is sent between parts at least twice as often as "
    "there are parts, less two, at the prices given for links and limits.",
    "too-few-steps": "A refutation (LRAT) of the clauses that a schedule of so many steps for a single chunk would "
    "satisfy.",
    "throughput-cut": "A set of ranks and switches, the data that must leave it and the bandwidth that leaves it.",
    "throughput-cuts": "Cuts together, weighed, with prices for the ports or NICs that they share.",
    "alltoall-lengths": "Each link and limit has a length: all pairs' shortest ways together, over what all links "
    "can pay.",
    "allreduce-parts": "A partition of the ranks into parts: each byte crosses between parts at least "
    "twice as"
    " often as there are parts, less two.",
    "switch-operations": "Through a switch that counts own data on their port each chunk uses at least two ports more "
    "than twice the number of ranks, over what all ports carry.",
}


def check_in_words(certificate: dict) -> str:
    """Return a sentence on the kind of `certificate`, its contents, and how it is checked.

    Any JSON object is accepted: a kind that is not known is named as such.
    """
    kind = str(certificate.get("kind", ""))
    if kind not in _HOW:
        return f"A certificate of kind {kind[:40]!r}." if kind else "No certificate is at hand."
    # Further parts that a certificate of some kinds may have.
    sentences = [_HOW[kind]]
    if certificate.get("covers"):
        sentences.append("Sends are counted whole: few of them near a rank reach too little.")
    if certificate.get("count"):
        sentences.append("A sum that all ranks want takes two sends per rank less two.")
    size = len(json.dumps(certificate, separators=(",", ":")))
    end = "checked without a solver, by sums of whole numbers"
    return f"{' '.join(sentences)} Certificate: {kind}, {size} bytes; {end}."


def of_point(point: Point) -> tuple[str, str]:
    """Return the claim proved of a point, and its proof, in words."""
    steps, value = counted(point.steps, "step"), point.bound.value
    scope = "with any number of chunks"
    if point.bound.scope != "any-chunks":
        scope = f"with {counted(point.chunks, 'chunk')} per part"
    claim = f"No schedule of {steps}, {scope}, takes fewer than {fraction_text(value)} rounds per chunk."
    if point.rounds_per_chunk == value:
        chunks = "" if point.status == "optimal" else " at this number of chunks"
        known = f"This one takes just that: it is optimal{chunks}."
    else:
        gap = f", {number(100 * (point.rounds_per_chunk / value - 1))}% more" if value else ""
        known = f"The best known takes {fraction_text(point.rounds_per_chunk)}{gap}: it is not proved optimal."
    return f"{claim} {known}", check_in_words(point.bound.certificate)


def of_bound(steps: int | None, bound: LowerBound) -> tuple[str, str]:
    """Return the claim of a bound that belongs to no point, and its proof, in words."""
    value = fraction_text(bound.value)
    if steps == 0:
        return f"No schedule takes fewer than {counted(int(bound.value), 'step')}.", check_in_words(bound.certificate)
    what = "any number of steps" if steps is None else f"{counted(steps, 'step')} or fewer"
    return f"With {what}, and any number of chunks, at least {value} rounds per chunk are needed.", check_in_words(
        bound.certificate
    )


def of_open(interval: Open) -> tuple[str, str]:
    """Return the open interval at some number of steps, and the reason why it is open, in words."""
    upper = "nothing was found" if interval.upper is None else f"the best known takes {show(interval.upper)}"
    steps, least = counted(interval.steps, "step"), fraction_text(interval.lower)
    claim = f"Open: with {steps} at least {least} rounds per chunk are needed, {upper}."
    why = f"Not decided: {WHY.get(interval.reason, interval.reason)}."
    return claim, f"{why} {check_in_words(interval.certificate)}" if interval.certificate else why


def completeness(found: Frontier) -> tuple[str, str]:
    """Return the claim that no point is missing, and its reason, or that points may be missing."""
    if not found.complete:
        return "Not proved complete: other points may exist where intervals are open or steps were not looked at.", ""
    most = found.max_steps
    upto = "any number of steps" if most is None else f"up to {counted(most, 'step')}"
    return (
        f"Complete: no schedule of {upto}, with any number of chunks, is better than these points.",
        "It follows from the bounds listed here: they refute fewer steps than the first point's, anything better "
        "between two points,"
        " and anything better after the last.",
    )
