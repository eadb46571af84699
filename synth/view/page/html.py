"""The sheets as one HTML file with inline styles, script and data, which loads nothing else.

Data cannot become markup: it is stored in ``<script type="application/json">`` with every ``<``, ``>`` and ``&``
escaped, read with JSON.parse and shown as text nodes only. The policy in the page's head allows the one script and the
one style sheet by their hashes and nothing else: no request, no other script, no markup from strings (Trusted Types).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files

from synth.view.page import certificate_text
from synth.view.page.frontier_section import Sheet

# In the order of concatenation: each uses names of those before it.
SCRIPTS = (
    *("dom", "numbers", "list", "chart", "stairs", "times"),
    *("replay", "machine", "heat", "player", "compare", "files", "entry", "main"),
)
ROOM = 4_000_000  # maximum characters of all packed schedules of a page, which keeps it small
LEFT_OUT = "left out to keep this page small; a report of this entry alone has it"


@cache
def asset(name: str) -> str:
    """Return the text of a file of the page. Raises OSError when the package is incomplete."""
    return files("synth.view.page").joinpath("assets", name).read_text(encoding="utf-8")


def page(sheets: Sequence[Sheet], title: str = "synth report", made: str = "", room: int = ROOM) -> str:
    """Return the HTML file, the same for the same sheets.

    Schedules take at most `room` characters together, the shortest first; others are omitted with a note.
    """
    script = '"use strict";\n{\n' + "\n".join(asset(f"{name}.js") for name in SCRIPTS) + "\n}\n"
    style = asset("page.css")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        f"form-action 'none';"
        " require-trusted-types-for 'script'; trusted-types 'none'"
    )
    # The list of entries, then a block for each machine and each entry, so that the page parses few of them.
    # The smallest schedules come first, as far as there is room.
    sizes = sorted(
        (len(a.move.data), i, k)
        for i, sheet in enumerate(sheets)
        for k, a in enumerate(sheet.algorithms)
        if a.move is not None
    )
    included = set()
    for size, i, k in sizes:
        room -= size
        if room < 0:
            break
        included.add((i, k))
    machines: dict[str, int] = {}
    blocks = []
    for i, sheet in enumerate(sheets):
        doc = sheet.to_json()
        for k, algorithm in enumerate(doc["algorithms"]):
            if algorithm["move"] is not None and (i, k) not in included:
                algorithm["lack"] = f"{algorithm['move']['sends']} sends, {LEFT_OUT}"
                algorithm["move"] = None
        drawing = None if sheet.machine is None else _json(sheet.machine.to_json())
        doc["machine"] = None if drawing is None else machines.setdefault(drawing, len(machines))
        blocks.append(_block(f"entry-{i}", _json(doc)))
    head = {
        "title": title,
        "made": made,
        "assumed": list(certificate_text.ASSUMED),
        "entries": [sheet.head() for sheet in sheets],
    }
    data = "\n".join(
        [_block("head", _json(head)), *(_block(f"machine-{k}", text) for text, k in machines.items()), *blocks]
    )
    values = {
        "<!--policy-->": escape(policy),
        "<!--title-->": escape(title),
        "/*style*/": style,
        "<!--data-->": data,
        "/*script*/": script,
    }
    before, text = [], asset("page.html")
    for mark, value in values.items():  # each mark occurs once, in this order; inserted text is not searched again
        head, _, text = text.partition(mark)
        before += [head, value]
    return "".join((*before, text)).encode("utf-8", "replace").decode()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: object) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _block(name: str, text: str) -> str:
    return f'<script type="application/json" id="{name}">{text}</script>'
