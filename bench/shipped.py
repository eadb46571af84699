"""Make the catalog that comes with the package, from one that `synth catalog build` made:

    synth catalog build examples/shipped.yaml --db made.db
    python -m bench.shipped made.db COMMIT          writes synth/catalog/shipped.sqlite

COMMIT is that of the engines that made it. Frontiers of exact synthesis alone are kept, each with the commit, each
checked once more; an entry of the file that is there is kept where it is complete and the new one is open.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from synth.catalog.entry import Entry
from synth.catalog.shipped import FILE
from synth.catalog.store import exact_frontiers
from synth.catalog.store.blobs import Blob, pack_small, unpack_bytes
from synth.catalog.store.store import Store

MOST_BYTES = 8 << 20


def made(entry: Entry, commit: str) -> Entry:
    """Return `entry` with the commit that made it, and without what depends on the day."""
    versions = dict(entry.provenance.versions) | {"commit": commit}
    origin = replace(entry.provenance, versions=tuple(versions.items()), machine="", created="")
    return replace(entry, provenance=origin, measurements=())


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
                    if entry.exact is None or not entry.exact.points:
                        continue
                    exact_frontiers.check(entry, {})
                    kept += target.put(made(entry, commit or dict(entry.provenance.versions)["commit"]))
        for row, *blob in target.base.execute("SELECT rowid, sum, size, body FROM blobs").fetchall():
            small = pack_small(unpack_bytes(Blob(*blob)))
            values = (small.sum, len(small.body), small.body, row)
            target.base.execute("UPDATE blobs SET sum = ?, packed = ?, body = ? WHERE rowid = ?", values)
    with sqlite3.connect(fresh) as base:
        base.execute("PRAGMA journal_mode = DELETE")
        base.execute("VACUUM")
    os.replace(fresh, FILE)
    size = FILE.stat().st_size
    print(f"{kept} entries, {size} bytes")
    return int(size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
