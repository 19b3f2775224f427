"""Finds what a log says about itself behind a place where it cannot be read.

Every neve batch states how far the log was durable when the batch was written (DurableThrough).
A power cut leaves damage only behind that point; so damage that a later, whole record knows to
have been durable was done afterwards, and acknowledged rows are lost. Without such a record the
damage is the torn tail of writes that nobody was told about.

A file that was cut takes such records with it. But its length was reserved before its first record,
and is given back only after LogEnd was synced: a log without LogEnd that was ever synced and is
shorter was cut.

Behind damage the chain of records is broken, so records are found by their headers: the log number
of a recyclable header is looked for at every byte, and what follows must have a right checksum.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from neve.errors import LimitExceeded
from neve.wal.batch_codec import read_stamp
from neve.wal.record_format import (
    BLOCK_BYTES,
    HEADER_BYTES,
    RECYCLABLE_HEADER,
    RECYCLABLE_HEADER_BYTES,
    Dialect,
    RecordType,
    record_checksum,
)
from neve.wal.segment_reader import ReadAt

# Bounds the work on bytes made to look like headers: only those that turn out not to be count.
_FORGERIES_MAX: Final = 100_000
_READ_BYTES: Final = 32 * BLOCK_BYTES
_ZEROS: Final = bytes(_READ_BYTES)
_BATCH_BEGINS: Final = (RecordType.RECYCLABLE_FULL, RecordType.RECYCLABLE_FIRST)


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableClaim:
    """A whole batch's word that every row up to `durable_through` was durable before it."""

    offset: int
    sequence: int
    durable_through: int
    nonce: int


def claims_after(
    read_at: ReadAt, *, from_offset: int, log_number: int, nonce: int | None
) -> Iterator[DurableClaim]:
    """Yield the claims of every whole record of this log that begins at or behind `from_offset`.

    Only records with the log's nonce count; where the log's start cannot be read, any does.
    Raises LimitExceeded when there is too much that only looks like records.
    """
    forgeries = 0
    for base, block in _written_blocks(read_at, from_offset - from_offset % BLOCK_BYTES):
        for position, payload_end in _candidates(block, log_number):
            if base + position < from_offset:
                continue
            claim = _claim_of(block, position, payload_end, log_number)
            if claim is not None and nonce in (None, claim.nonce):
                yield replace(claim, offset=base + position)
                continue
            forgeries += 1
            if forgeries > _FORGERIES_MAX:
                raise LimitExceeded(
                    "too many bytes behind damage only look like records",
                    limit=_FORGERIES_MAX,
                    offset=base + position,
                    hint="whether rows are lost cannot be told",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRows:
    """Rows that were durable and could not be read."""

    words: str
    durable_through: int


def lost_rows(claims: Iterable[DurableClaim], *, due: int | None) -> LostRows | None:
    """Say which rows are lost when `due` is the first that could not be read; None if none is.

    Where nothing could be read, the lowest row that any record holds is due.
    """
    first = due
    for claim in claims:
        first = claim.sequence if first is None else first
        if due is None:
            first = min(first, claim.sequence)
        if claim.durable_through >= first:
            words = (
                f"the record at byte {claim.offset:,} shows that rows up to "
                f"{claim.durable_through:,} were durable, and rows from {first:,} cannot be read"
            )
            return LostRows(words=words, durable_through=claim.durable_through)
    return None


def cut_file(*, size: int, reserved_bytes: int, due: int) -> str | None:
    """Say that a log without LogEnd was cut: its writer never makes it shorter than reserved."""
    if size >= reserved_bytes:
        return None
    return (
        f"the file has {size:,} bytes where {reserved_bytes:,} were reserved, so it was cut, and "
        f"rows from {due:,} on may be missing"
    )


def _written_blocks(read_at: ReadAt, base: int) -> Iterator[tuple[int, bytes]]:
    """Blocks that are not all zeros; a log's reserved space is passed over in large steps."""
    while chunk := read_at(base, _READ_BYTES):
        if chunk != _ZEROS[: len(chunk)]:
            for start in range(0, len(chunk), BLOCK_BYTES):
                yield base + start, chunk[start : start + BLOCK_BYTES]
        base += len(chunk)


def _candidates(block: bytes, log_number: int) -> Iterator[tuple[int, int]]:
    """Positions that look like the header of a batch's first fragment, with the payload's end."""
    signature = (log_number & 0xFFFFFFFF).to_bytes(4, "little")
    found = block.find(signature, HEADER_BYTES)
    while found >= 0:
        position = found - HEADER_BYTES
        _, length, record_type, _ = RECYCLABLE_HEADER.unpack_from(block, position)
        end = position + RECYCLABLE_HEADER_BYTES + length
        if record_type in _BATCH_BEGINS and end <= len(block):
            yield position, end
        found = block.find(signature, found + 1)


def _claim_of(
    block: bytes, position: int, payload_end: int, log_number: int
) -> DurableClaim | None:
    stored_crc, _, record_type, _ = RECYCLABLE_HEADER.unpack_from(block, position)
    payload = block[position + RECYCLABLE_HEADER_BYTES : payload_end]
    stamp = read_stamp(payload)
    if stamp is None:
        return None
    actual = record_checksum(
        Dialect.CRC32C, record_type=record_type, log_number=log_number, payload=payload
    )
    if actual != stored_crc:
        return None
    return DurableClaim(
        offset=position,
        sequence=int.from_bytes(payload[:8], "little"),
        durable_through=stamp.durable_through,
        nonce=stamp.nonce,
    )
