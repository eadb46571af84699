"""An independent reader of MSCCL-IR, as strict as the strictest thing each loader does; shares no code with `synth`.

Written from the loaders' rules: NCCL's lexer, which goes from character to character and knows no entities, and the
attribute checks of microsoft/msccl, Azure/msccl-executor-nccl and ROCm/rccl. Raises `Refused` with what a loader would
say, or with what it would not notice and the kernel would trip over.
"""

import re
from dataclasses import dataclass, field

MAX_STR, MAX_ATTRS, MAX_NODES, MAX_SUBS = 255, 16, 4096, 1024
STEPS = {"msccl": 256, "msccl-executor": 64, "rccl": 64}
BLOCKS = {"msccl": 216, "msccl-executor": 1024, "rccl": 64}
CHANNELS = {"msccl": 32, "msccl-executor": 32, "rccl": 128}
LAUNCHED = {
    "msccl": {"s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop"},
    "msccl-executor": {"s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop"},
    "rccl": {"s", "r", "cpy", "re", "nop"},
}
COLLECTIVES = {
    "msccl": {"allreduce", "allgather", "reduce", "broadcast", "alltoall", "reduce_scatter", "custom"},
    "msccl-executor": {"allreduce", "allgather", "reduce", "broadcast", "alltoall", "reducescatter"},
    "rccl": {"allreduce", "allgather", "reduce", "broadcast", "alltoall", "reducescatter"},
}


class Refused(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Refused(what)


@dataclass
class Node:
    name: str
    attrs: dict
    subs: list = field(default_factory=list)

    def str(self, key):
        need(key in self.attrs, f"attribute {key} of {self.name} not found")
        return self.attrs[key]

    def int(self, key):
        text = self.str(key)
        need(text.lstrip("-").isdigit() and str(int(text)) == text, f"{key}={text}")
        return int(text)


# One element with its attributes, each after one blank; no entities, and no character that the lexer trips over.
NAME = rf"\w{{1,{MAX_STR - 1}}}"
ATTRIBUTE = rf" ({NAME})=\"([^\n\r\t&<>'\"]{{0,{MAX_STR}}})\""
ELEMENT = re.compile(rf"[ \n\r]*<(/?)({NAME})((?:{ATTRIBUTE}){{0,{MAX_ATTRS}}})(/?)>")


def lex(text):
    """The elements of the file, one after the other: ("open" | "single" | "close", Node)."""
    found, at = [], 0
    while at < len(text.rstrip(" \n\r")):
        element = ELEMENT.match(text, at)
        need(element, f"no element of the loader's form: {text[at : at + 60]!r}")
        closing, name, given, *_, single = element.groups()
        attrs = re.findall(ATTRIBUTE, given)
        need(len({key for key, _ in attrs}) == len(attrs), "an attribute twice")
        need(not closing or not (attrs or single), "a closing tag with more than its name")
        found.append(("close" if closing else "single" if single else "open", Node(name, dict(attrs))))
        at = element.end()
    return found


def parse(nodes, own):
    """The <algo> as a loader keeps it for rank `own`: other ranks' gpus without their contents."""
    inside = {"": ("algo",), "algo": ("gpu",), "gpu": ("tb",), "tb": ("step",), "step": ()}
    root, kept = Node("", {}), 0
    stack = [(root, True)]
    for kind, read in nodes:
        node = Node(read.name, read.attrs)
        head, keeping = stack[-1]
        if kind == "close":
            need(head.name == node.name and len(stack) > 1, f"mismatch {head.name} / {node.name}")
            stack.pop()
            continue
        need(node.name in inside[head.name], f"element {node.name} in {head.name}")
        if keeping:
            kept += 1
            need(kept < MAX_NODES, "too many nodes")
            head.subs.append(node)
            need(len(head.subs) <= MAX_SUBS, "too many children")
        if kind == "open":
            stack.append((node, keeping and (node.name != "gpu" or node.int("id") == own)))
    need(len(stack) == 1 and len(root.subs) == 1, "unterminated, or not one algo")
    return root.subs[0]


def load(text, profile):
    """Return the algorithm that every rank's loader keeps. Raises Refused."""
    need(text.isascii() and "\t" not in text, "tabs or non-ASCII characters")
    nodes = lex(text)
    ranks = parse(nodes, -1).int("ngpus")
    algos = [parse(nodes, rank) for rank in range(ranks)]
    for rank, algo in enumerate(algos):
        check(algo, rank, profile)
    pairs(algos)
    return algos


def check(algo, rank, profile):
    ranks, total, channels = algo.int("ngpus"), algo.int("nchunksperloop"), algo.int("nchannels")
    need(total > 0, "nchunksperloop divides by zero")
    need(algo.str("proto") in ("Simple", "LL", "LL128"), "proto")
    need(1 <= channels <= CHANNELS[profile], "nchannels")
    coll = algo.str("coll")
    need(coll in COLLECTIVES[profile], f"collective {coll}")
    low, high = algo.int("minBytes"), algo.int("maxBytes")
    need(0 <= low < 1 << 63 and 0 <= high < 1 << 63, "sizes")
    need(algo.int("inplace") in (0, 1), "inplace")
    if profile == "msccl":
        need(len(algo.str("name")) <= 63, "name too long")
        need(low < high, "never selected")
    else:
        need(algo.int("outofplace") in (0, 1) and algo.int("inplace") + algo.int("outofplace") > 0, "never selected")
        need(high == 0 or low <= high, "never selected")
    need(sorted(gpu.int("id") for gpu in algo.subs) == list(range(ranks)), "gpus")
    gpu = next(gpu for gpu in algo.subs if gpu.int("id") == rank)
    sizes = {"i": gpu.int("i_chunks"), "o": gpu.int("o_chunks"), "s": gpu.int("s_chunks")}
    need(min(sizes.values()) >= 0, "negative buffer")
    if profile == "msccl":
        per = {"i": ranks if coll == "allgather" else 1, "o": ranks if coll == "reduce_scatter" else 1}
        need(all(sizes[b] in (0, total // per[b]) for b in "io"), "inconsistent nchunksperloop")
        need(sizes["s"] * high // total <= 1 << 36, "scratch without a bound")
    need(sorted(tb.int("id") for tb in gpu.subs) == list(range(len(gpu.subs))), "thread blocks are not 0, 1, ..")
    need(len(gpu.subs) <= BLOCKS[profile], "too many thread blocks")
    tbs = {tb.int("id"): tb for tb in gpu.subs}
    for way in ("send", "recv"):
        used = [(tb.int(way), tb.int("chan")) for tb in gpu.subs if tb.int(way) != -1]
        need(len(set(used)) == len(used), "two thread blocks on one end of a connection")
        need(all(0 <= peer < ranks and peer != rank for peer, _ in used), "peer")
        need(max([sum(c == chan for _, c in used) for _, chan in used], default=0) <= 32, "too many per channel")
    for tb in gpu.subs:
        need(0 <= tb.int("chan") < channels, "chan")
        block(tb, tbs, sizes, profile)


def block(tb, tbs, sizes, profile):
    waiting = chain = 0
    before = None
    for index, step in enumerate(tb.subs):
        need(step.int("s") == index < STEPS[profile], "step number")
        kind, count = step.str("type"), step.int("cnt")
        need(kind in LAUNCHED[profile], f"{kind} is not launched")
        need(step.str("srcbuf") in sizes and step.str("dstbuf") in sizes, "buffer")
        need(step.int("hasdep") in (0, 1), "hasdep")
        other, at = step.int("depid"), step.int("deps")
        need((other == at == -1) or (0 <= other <= 127 and at >= 0), "dependency")
        if other >= 0:
            need(other in tbs and at < len(tbs[other].subs), "dependency on nothing")
            need(
                tbs[other].subs[at].int("hasdep") == 1 and tbs[other].subs[at].str("type") != "nop",
                "dependency never signalled",
            )
        if kind == "nop":
            need(other >= 0 and step.int("hasdep") == 0, "nop without a dependency, or waited for")
            waiting += 1
            before = None
            continue
        need(not waiting or other >= 0, "the last of several dependencies is not on the instruction")
        waiting = 0
        need(1 <= count <= 71, "cnt")
        for which in ("src", "dst"):
            need(
                step.int(f"{which}off") >= 0 and step.int(f"{which}off") + count <= sizes[step.str(f"{which}buf")],
                f"{which} outside",
            )
        need(kind not in ("s", "rcs", "rrs", "rrcs") or tb.int("send") >= 0, "send without a peer")
        need(kind not in ("r", "rcs", "rrs", "rrc", "rrcs") or tb.int("recv") >= 0, "receive without a peer")
        same = ("dstbuf", "dstoff", "srcbuf")
        merged = before is not None and kind == "re" and other < 0 and all(before.str(k) == step.str(k) for k in same)
        chain = chain + 1 if merged else 1
        need(not merged or (before.int("cnt") == count and chain <= 16), "re merged wrongly")
        before = step if kind == "re" and not step.int("hasdep") else None
    need(not waiting, "a nop is last")


def pairs(algos):
    """The same counts in the same order at both ends of every connection."""
    sent, got = {}, {}
    for rank, algo in enumerate(algos):
        for tb in next(gpu for gpu in algo.subs if gpu.int("id") == rank).subs:
            for step in tb.subs:
                kind, count, chan = step.str("type"), step.int("cnt"), tb.int("chan")
                if kind in ("s", "rcs", "rrs", "rrcs"):
                    sent.setdefault((rank, tb.int("send"), chan), []).append(count)
                if kind in ("r", "rcs", "rrs", "rrc", "rrcs"):
                    got.setdefault((tb.int("recv"), rank, chan), []).append(count)
    need(sent == got, "the ends of a connection differ")
