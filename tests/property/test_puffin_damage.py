"""Puffin files and vectors, damaged: a typed error or the same rows, never others."""

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from neve.errors import Corruption, NeveError
from neve.model.data_file import VectorRef
from neve.sstable.deletion_vector import decode_vector, encode_vector, read_vector
from neve.sstable.puffin import read_puffin_footer, read_puffin_vector, write_puffin
from neve.storage.memory_store import MemoryStore
from neve.storage.table_paths import TablePaths
from tests.gates import Gate
from tests.property.mutation import mutated

Record = Callable[[str], None]

PATHS = TablePaths("1")
PUFFIN = PATHS.delete_file("v")
VECTORS = {
    "data/array.parquet": BitMap64([1, 3, 5]),
    "data/run.parquet": BitMap64(range(100, 9_000)),
    "data/far.parquet": BitMap64([7, 1 << 32, (1 << 32) + 70_000]),
}
DENSE = BitMap64(range(0, 30_000, 3))

positions = st.builds(
    BitMap64, st.lists(st.integers(0, 200_000) | st.integers(0, (1 << 63) - 1), max_size=300)
)


def flipped(payload: bytes) -> Iterator[bytes]:
    """Flip every bit in turn."""
    for bit in range(len(payload) * 8):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)


def reader(payload: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, length: payload[offset : offset + length]


# R11


def test_no_flipped_bit_of_a_puffin_file_changes_which_rows_are_live(scoreboard: Record) -> None:
    payload, places = write_puffin(VECTORS, created_by="neve")
    refs = {
        data_file: VectorRef(
            path="deletes/v.puffin",
            offset=place.offset,
            length=place.length,
            cardinality=place.cardinality,
        )
        for data_file, place in places.items()
    }
    store = MemoryStore()
    bits = detected = 0

    for damaged in flipped(payload):
        bits += 1
        store.put(PUFFIN, damaged)
        for data_file, ref in refs.items():
            try:
                assert read_vector(store, PATHS, ref) == VECTORS[data_file]
            except Corruption:
                detected += 1

    # One vector each, and none for the footer, which nobody needs in order to read rows.
    assert detected == 8 * sum(place.length for place in places.values())
    scoreboard(f"R11 Puffin bit flips: rows that come back or go 0 of {bits:,}")


def test_no_flipped_bit_of_a_vector_goes_unnoticed(scoreboard: Record) -> None:
    bits = 0

    for vector in (*VECTORS.values(), DENSE):
        for damaged in flipped(encode_vector(vector)):
            bits += 1
            with pytest.raises(Corruption):
                decode_vector(damaged)

    scoreboard(f"R11 vector bit flips: unnoticed 0 of {bits:,}")


def test_no_flipped_bit_of_a_footer_gives_a_vector_that_was_never_written(
    scoreboard: Record,
) -> None:
    payload, places = write_puffin(VECTORS, created_by="neve")
    written = {place.offset: VECTORS[data_file] for data_file, place in places.items()}
    bits = 0

    for damaged in flipped(payload):
        bits += 1
        with suppress(NeveError):
            read_at = reader(damaged)
            for blob in read_puffin_footer(read_at, len(damaged), path=PUFFIN).blobs:
                assert read_puffin_vector(read_at, blob, path=PUFFIN) == written[blob.offset]

    scoreboard(f"R11 Puffin bit flips, by the footer: vectors never written 0 of {bits:,}")


def test_every_shorter_file_is_corruption() -> None:
    payload, _ = write_puffin(VECTORS, created_by="neve")

    for length in range(len(payload)):
        with pytest.raises(Corruption):
            read_puffin_footer(reader(payload[:length]), length, path=PUFFIN)


# R19


def sealed(vector: bytes) -> bytes:
    """Return a blob whose length and checksum are right, whatever the vector is."""
    checked = b"\xd1\xd3\x39\x64" + vector
    return struct.pack(">I", len(checked)) + checked + struct.pack(">I", zlib.crc32(checked))


def test_a_damaged_vector_behind_a_right_checksum_is_a_typed_error_or_a_vector(
    scoreboard: Record,
) -> None:
    gate = Gate("R19 vectors, mutated: untyped errors", aim=200_000, full=10_000_000)
    vectors = [encode_vector(vector)[8:-4] for vector in (*VECTORS.values(), DENSE)]

    for seed in gate.seeds():
        rng = Random(seed)
        for vector in vectors:
            for _ in range(100):
                with suppress(NeveError):
                    found = decode_vector(sealed(mutated(vector, rng)))
                    assert decode_vector(encode_vector(found)) == found
                gate.cases += 1

    scoreboard(gate.line())


def test_a_damaged_puffin_file_is_a_typed_error_or_a_footer(scoreboard: Record) -> None:
    gate = Gate("R19 Puffin files, mutated: untyped errors", aim=200_000, full=10_000_000)
    payload, _ = write_puffin(VECTORS, created_by="neve")
    footer_at = payload.rindex(b'{"blobs"')

    for seed in gate.seeds():
        rng = Random(seed)
        for _ in range(100):
            # Half of the time the payload alone, whose size is then right, so that it is read.
            if rng.random() < 0.5:
                changed = mutated(payload[footer_at:-12], rng)
                damaged = (
                    payload[:footer_at] + changed + struct.pack("<iI", len(changed), 0) + b"PFA1"
                )
            else:
                damaged = mutated(payload, rng)
            # Any other error than neve's own fails the test.
            with suppress(NeveError):
                read_at = reader(damaged)
                for blob in read_puffin_footer(read_at, len(damaged), path=PUFFIN).blobs:
                    assert isinstance(read_puffin_vector(read_at, blob, path=PUFFIN), BitMap64)
            gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases


# Round trips


@given(positions)
def test_any_vector_comes_back_as_it_was(vector: BitMap64) -> None:
    assert decode_vector(encode_vector(vector)) == vector


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), positions.filter(bool), max_size=4))
def test_any_puffin_file_comes_back_as_it_was(vectors: dict[str, BitMap64]) -> None:
    payload, _ = write_puffin(vectors, created_by="neve")

    footer = read_puffin_footer(reader(payload), len(payload), path=PUFFIN)

    found = {
        blob.referenced_data_file: read_puffin_vector(reader(payload), blob, path=PUFFIN)
        for blob in footer.blobs
    }
    assert found == vectors
