"""Iceberg's golden vectors and Puffin files are read and written alike; PyIceberg reads ours."""

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from neve.errors import Corruption
from neve.sstable.deletion_vector import decode_vector, encode_vector
from neve.sstable.puffin import encode_footer, read_puffin_footer, write_puffin
from tests.interop.golden_files import golden

Record = Callable[[str], None]

CONTAINER = 1 << 16
BITMAP = 1 << 32


def spread(*parts: tuple[int, range | list[int]]) -> BitMap64:
    return BitMap64([start + low for start, lows in parts for low in lows])


POSITION_INDEXES = {
    "all-container-types-position-index.bin": spread(
        (0, [5, 7]),
        (CONTAINER, range(1, 1_000)),
        (2 * CONTAINER, range(1, CONTAINER - 1)),
        (BITMAP, [10, 20]),
        (BITMAP + CONTAINER, range(10, 500)),
        (BITMAP + 2 * CONTAINER, range(1, CONTAINER - 1)),
    ),
    "empty-position-index.bin": BitMap64(),
    "small-alternating-values-position-index.bin": BitMap64([1, 3, 5, 7, 9]),
    "small-and-large-values-position-index.bin": BitMap64(
        [100, 101, (1 << 31) + 99, (1 << 31) + 100]
    ),
}
ROARING_MAPS = {
    "64map32bitvals.bin": BitMap64(range(10)),
    "64mapempty.bin": BitMap64(),
    "64mapspreadvals.bin": spread(*((high * BITMAP, range(10)) for high in range(10))),
}
SAMPLES = ("sample-metric-data-uncompressed.bin", "sample-metric-data-compressed-zstd.bin")


def sealed(vector: bytes) -> bytes:
    checked = b"\xd1\xd3\x39\x64" + vector
    return struct.pack(">I", len(checked)) + checked + struct.pack(">I", zlib.crc32(checked))


def reader(payload: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, length: payload[offset : offset + length]


# What Iceberg wrote


@pytest.mark.parametrize("name", POSITION_INDEXES)
def test_a_golden_vector_is_read_and_written_to_the_same_bytes(
    name: str, scoreboard: Record
) -> None:
    blob = golden(f"deletes/{name}")

    assert decode_vector(blob) == POSITION_INDEXES[name]
    assert encode_vector(POSITION_INDEXES[name]) == blob
    scoreboard(f"R22 golden vector {name}: identical")


@pytest.mark.parametrize("name", ROARING_MAPS)
def test_a_golden_bitmap_is_read(name: str, scoreboard: Record) -> None:
    vector = golden(f"deletes/{name}")

    assert decode_vector(sealed(vector)) == ROARING_MAPS[name]
    scoreboard(f"R22 golden bitmap {name}: read")


def test_a_golden_bitmap_that_iceberg_refuses_is_corruption() -> None:
    kept = golden("deletes/64maphighvals.bin")
    last = range((1 << 32) - 11, 1 << 32)
    positions = [high * BITMAP + low for high in last for low in last]
    vector = BitMap64(positions, optimize=False).serialize()

    # The copy at hand was once read as text, which wrote all bytes above 127 alike.
    assert kept in {vector, vector.decode(errors="replace").encode()}
    with pytest.raises(Corruption, match="marks row"):
        decode_vector(sealed(vector))


@pytest.mark.parametrize("name", ["empty-puffin-uncompressed.bin", *SAMPLES])
def test_the_footer_of_a_golden_puffin_file_is_read_and_written_to_the_same_bytes(
    name: str, scoreboard: Record
) -> None:
    payload = golden(f"puffin/v1/{name}")

    footer = read_puffin_footer(reader(payload), len(payload), path=name)

    assert payload.endswith(encode_footer(footer))
    begins = max((blob.offset + blob.length for blob in footer.blobs), default=4)
    assert len(payload) == begins + len(encode_footer(footer))
    scoreboard(f"R22 golden Puffin file {name}: identical")


def test_the_blobs_of_the_golden_puffin_files_are_where_the_footer_says() -> None:
    plain, packed = (golden(f"puffin/v1/{name}") for name in SAMPLES)
    plain_footer = read_puffin_footer(reader(plain), len(plain), path="plain")
    packed_footer = read_puffin_footer(reader(packed), len(packed), path="packed")

    assert plain[4:13] == b"abcdefghi"
    for one, other in zip(plain_footer.blobs, packed_footer.blobs, strict=True):
        frame = packed[other.offset : other.offset + other.length]
        unpacked = pa.CompressedInputStream(pa.BufferReader(frame), "zstd").read()
        assert unpacked == plain[one.offset : one.offset + one.length]
        assert other.compression_codec == "zstd"
        assert replace(other, offset=one.offset, length=one.length, compression_codec=None) == one


# What PyIceberg reads


@pytest.mark.parametrize(
    "vectors",
    [
        {"s3://lake/a.parquet": BitMap64([1, 3, 5])},
        {
            "s3://lake/a.parquet": BitMap64(range(0, 300_000, 3)),
            "s3://lake/ü b.parquet": BitMap64(range(5_000, 90_000)),
            "s3://lake/c.parquet": BitMap64([0, 1 << 32, (1 << 33) + 5]),
        },
    ],
    ids=["one", "three"],
)
def test_pyiceberg_reads_our_vectors(vectors: Mapping[str, BitMap64]) -> None:
    payload, places = write_puffin(vectors, created_by="neve")

    theirs = PuffinFile(payload)

    assert {
        vector.referenced_data_file: BitMap64(vector.to_vector().to_numpy())
        for vector in deletion_vectors_from_puffin_file(theirs)
    } == vectors
    for blob in theirs.footer.blobs:
        place = places[blob.properties["referenced-data-file"]]
        assert (blob.offset, blob.length) == (place.offset, place.length)
        assert blob.properties["cardinality"] == str(place.cardinality)
        assert (blob.snapshot_id, blob.sequence_number) == (-1, -1)
        assert blob.fields == [2_147_483_645]
        assert blob.compression_codec is None
