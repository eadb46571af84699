"""Canonical JSON: sorted keys, no white space. Every fingerprint is a hash of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping


def canonical(doc: object) -> bytes:
    """Return the canonical JSON of a document."""
    return json.dumps(doc, sort_keys=True, separators=(",", ":"), ensure_ascii=True, check_circular=False).encode()


def object_digest(fields: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the canonical JSON of an object. `fields`: the canonical JSON of each value, by its key."""
    sha256, before = hashlib.sha256(), b"{"
    for key in sorted(fields):
        sha256.update(before + canonical(key) + b":")
        sha256.update(fields[key])
        before = b","
    sha256.update(b"}")
    return sha256.hexdigest()
