"""Walks the raw bytes of a log by the format page alone; shares no code with `neve.wal`.

It is the ground truth of the forensic tests: a mistake that the writer and the reader of neve have
in common shows here. It accepts a log only if every byte is accounted for, so it does not read
damaged logs, it refuses them with the offset of the first byte that is wrong.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

BLOCK = 32_768
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
RECYCLABLE_SHIFT = 4


class NotALog(AssertionError):
    """The bytes at `offset` are not what a log has there."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(f"{what} at byte {offset}")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Physical:
    """One physical record as it lies in the file."""

    offset: int
    type_byte: int
    log_number: int | None
    payload: bytes

    @property
    def header_bytes(self) -> int:
        return 7 if self.log_number is None else 11

    @property
    def kind(self) -> int:
        """Type without the recyclable mark."""
        return self.type_byte if self.log_number is None else self.type_byte - RECYCLABLE_SHIFT

    @property
    def block(self) -> int:
        return self.offset // BLOCK

    @property
    def block_offset(self) -> int:
        return self.offset % BLOCK

    @property
    def end(self) -> int:
        return self.offset + self.header_bytes + len(self.payload)


@dataclass(frozen=True, slots=True)
class Walk:
    """Everything in a log: its physical records and its runs of zeros, as (offset, length)."""

    records: tuple[Physical, ...]
    paddings: tuple[tuple[int, int], ...]


def crc32c(content: bytes) -> int:
    """CRC-32C by its table; slow, and independent of the library that neve uses."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _CASTAGNOLI[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def stored_checksum(dialect: str, type_byte: int, log_number: int | None, payload: bytes) -> int:
    """Return the checksum that the format page asks for."""
    number = b"" if log_number is None else log_number.to_bytes(4, "little")
    match dialect:
        case "crc32c":
            return crc32c(bytes((type_byte,)) + number + payload)
        case "rocksdb":
            crc = crc32c(bytes((type_byte,)) + number + payload)
            return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        case "merutable":
            return zlib.crc32(bytes((type_byte,)) + payload)
        case _:
            raise ValueError(dialect)


def walk(log: bytes, *, dialect: str) -> Walk:
    """Account for every byte of a whole log; raises NotALog."""
    records: list[Physical] = []
    paddings: list[tuple[int, int]] = []
    offset = 0
    while offset < len(log):
        block_end = min(len(log), (offset // BLOCK + 1) * BLOCK)
        room = block_end - offset
        if room < 7 or log[offset : offset + 7] == bytes(7):
            if any(log[offset:block_end]):
                raise NotALog("padding that is not zero", offset)
            paddings.append((offset, room))
            offset = block_end
            continue
        record = _read(log, offset, block_end, dialect)
        records.append(record)
        offset = record.end
    return Walk(tuple(records), tuple(paddings))


def assemble(records: Sequence[Physical]) -> list[bytes]:
    """Join fragments to payloads, holding them to First, Middle…, Last in consecutive blocks."""
    payloads: list[bytes] = []
    begun: list[Physical] = []
    for record in records:
        if record.kind in (FULL, FIRST) and begun:
            raise NotALog("a record begins inside another", record.offset)
        if record.kind in (MIDDLE, LAST):
            if not begun:
                raise NotALog("a fragment without a beginning", record.offset)
            if record.block != begun[-1].block + 1 or record.block_offset != 0:
                raise NotALog("a fragment that is not at the next block's start", record.offset)
        if record.kind in (FIRST, MIDDLE) and record.end % BLOCK != 0:
            raise NotALog("a fragment that does not fill its block", record.offset)
        begun.append(record)
        if record.kind in (FULL, LAST):
            payloads.append(b"".join(part.payload for part in begun))
            begun = []
    if begun:
        raise NotALog("a record without an end", begun[0].offset)
    return payloads


def _read(log: bytes, offset: int, block_end: int, dialect: str) -> Physical:
    type_byte = log[offset + 6]
    if not 1 <= type_byte <= 8:
        raise NotALog(f"record type {type_byte}", offset)
    header_bytes = 7 if type_byte <= LAST else 11
    length = int.from_bytes(log[offset + 4 : offset + 6], "little")
    start = offset + header_bytes
    if start + length > block_end:
        raise NotALog("a record that leaves its block", offset)
    log_number = None
    if header_bytes == 11:
        log_number = int.from_bytes(log[offset + 7 : start], "little")
    payload = log[start : start + length]
    stored = int.from_bytes(log[offset : offset + 4], "little")
    if stored != stored_checksum(dialect, type_byte, log_number, payload):
        raise NotALog("a wrong checksum", offset)
    return Physical(offset, type_byte, log_number, payload)


def _castagnoli_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_CASTAGNOLI = _castagnoli_table()
