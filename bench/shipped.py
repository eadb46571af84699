"""Make the catalog that comes with the package, from one that `synth catalog build` made:

    synth catalog build examples/shipped.yaml --db made.db
    python -m bench.shipped made.db COMMIT          writes synth/catalog/shipped.sqlite

COMMIT is that of the engines that made it. Frontiers of exact synthesis alone are kept, each with the commit, each
checked once more; an entry of the file that is there is kept where it is complete and the new one is open.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from synth.catalog.entry import Entry
from synth.catalog.shipped import FILE
from synth.catalog.store import Store
from synth.checker.documents import exact_frontier

MOST_BYTES = 8 << 20


def made(entry: Entry, commit: str) -> Entry:
    """Return `entry` with the commit that made it, and without what depends on the day."""
    kept = {key: value for key, value in entry.provenance.items() if key not in ("machine", "created")}
    if commit:
        kept["versions"] = kept["versions"] | {"commit": commit}
    return replace(entry, provenance=kept)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; 1 where it is too large for the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("catalog", type=Path)
    parser.add_argument("commit")
    given = parser.parse_args(arguments)
    fresh = FILE.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    kept = 0
    with Store.open(fresh, create=True) as target:
        for source, commit in ((given.catalog, given.commit), (FILE, "")):
            if not source.is_file():
                continue
            with Store.open(source) as store:
                for fingerprint in store.fingerprints():
                    entry = store.get(fingerprint)
                    if entry.frontier.points:
                        exact_frontier.document(entry.frontier.to_json())
                        kept += target.put(made(entry, commit))
        target.base.execute("VACUUM")
    os.replace(fresh, FILE)
    size = FILE.stat().st_size
    print(f"{kept} entries, {size} bytes")
    return int(size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
