"""Compressed documents with checksums, as a catalog stores them; nothing that is read is trusted, its size included."""

from __future__ import annotations

import hashlib
import json
import lzma
import zlib
from typing import NamedTuple

from synth.errors import FormatError, json_kind
from synth.model.canonical_json import canonical

# Bytes of one document when unpacked: a limit on the memory that a damaged or hostile file can take.
MOST_BYTES = 1 << 28
LEVEL = 6  # zlib's compression level, its own default
XZ = b"\xfd7zXZ\x00"  # with which a document in the smaller, slower compression begins
XZ_MEMORY = 1 << 25  # bytes of memory that unpacking one may take


class Blob(NamedTuple):
    """A compressed document. `sum`: SHA-256 of `body`, the compressed bytes. `size`: bytes when unpacked."""

    sum: str
    size: int
    body: bytes


def pack(doc: object) -> Blob:
    """Return the canonical JSON of `doc`, compressed."""
    return pack_bytes(canonical(doc))


def pack_bytes(data: bytes) -> Blob:
    """Return `data`, compressed. Raises FormatError where it has more than `MOST_BYTES` bytes, which are never read."""
    if len(data) > MOST_BYTES:
        raise FormatError(f"a document of {len(data)} bytes; a catalog keeps at most {MOST_BYTES}")
    body = zlib.compress(data, LEVEL)
    return Blob(hashlib.sha256(body).hexdigest(), len(data), body)


def pack_small(data: bytes) -> Blob:
    """Return `data` in a compression that takes longer and, of schedules, an eighth of the bytes."""
    body = lzma.compress(data, preset=6)
    return Blob(hashlib.sha256(body).hexdigest(), len(data), body)


def unpack(blob: Blob) -> dict:
    """Return the JSON object in `blob`. Raises FormatError where it is damaged, or larger than `MOST_BYTES`."""
    try:
        doc = json.loads(unpack_bytes(blob))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"holds no JSON: {error}"[:200]) from None
    if not isinstance(doc, dict):
        raise FormatError(f"holds {json_kind(doc)}, not an object")
    return doc


def unpack_bytes(blob: Blob) -> bytes:
    """Return the bytes that were packed. Raises FormatError as `unpack` does."""
    check_checksum(blob)
    if not 0 <= blob.size <= MOST_BYTES:
        raise FormatError(f"says it unpacks to {blob.size} bytes; at most {MOST_BYTES} are read")
    small = blob.body.startswith(XZ)
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, XZ_MEMORY) if small else zlib.decompressobj()
    try:
        data = unpacker.decompress(blob.body, blob.size + 1)
    except (zlib.error, lzma.LZMAError) as error:
        raise FormatError(f"cannot be unpacked: {error}") from None
    if len(data) != blob.size or not unpacker.eof:
        raise FormatError(f"does not unpack to the {blob.size} bytes that were written")
    return data


def check_checksum(blob: Blob) -> None:
    """Compare the checksum. Raises FormatError where the bytes are not those that were written."""
    if not isinstance(blob.body, bytes) or not isinstance(blob.size, int):
        raise FormatError("is no compressed document")
    if hashlib.sha256(blob.body).hexdigest() != blob.sum:
        raise FormatError("its checksum does not fit: the bytes are not those that were written")
