"""The pictures of the README, made again: python -m bench.pictures [FOLDER]."""

from __future__ import annotations

import sys
from pathlib import Path

import synth
from bench.measure import ROOT
from synth.view.plot import image
from synth.view.svg import topology_svg

FOLDER = ROOT / "docs" / "img"


def main(arguments: list[str] | None = None) -> int:
    """Writes the drawings and plots to a folder; docs/img unless told otherwise."""
    given = sys.argv[1:] if arguments is None else arguments
    folder = Path(given[0]) if given else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dgx1.svg").write_text(topology_svg(synth.topology("dgx1")), encoding="utf-8")
    for name, collective, last in (("allgather", "allgather", None), ("broadcast", "broadcast", 8)):
        frontier = synth.pareto("dgx1", collective, max_steps=last, fresh=True, engine="exact")
        assert isinstance(frontier, synth.Frontier)  # what the exact engine returns
        (folder / f"dgx1-{name}.svg").write_bytes(image(frontier.plot(), "svg"))
        print(f"{folder / f'dgx1-{name}.svg'}: {[f'{p.steps}: {p.bandwidth}, {p.status}' for p in frontier.points]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
