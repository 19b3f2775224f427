"""Vectors and Puffin files of Java Iceberg are written alike here; PyIceberg reads ours."""

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
from tests.interop.java_iceberg import JavaIceberg

Record = Callable[[str], None]

CONTAINER = 1 << 16
BITMAP = 1 << 32

needs_java = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    # PySpark leaves the closing of its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def run(start: int, stop: int, *, at: int = 0) -> range:
    return range(at + start, at + stop)


def single(*positions: int) -> list[range]:
    return [run(position, position + 1) for position in positions]


POSITION_INDEXES = {
    "all kinds of containers": [
        *single(5, 7),
        run(1, 1_000, at=CONTAINER),
        run(1, CONTAINER - 1, at=2 * CONTAINER),
        *single(BITMAP + 10, BITMAP + 20),
        run(10, 500, at=BITMAP + CONTAINER),
        run(1, CONTAINER - 1, at=BITMAP + 2 * CONTAINER),
    ],
    "empty": [],
    "small alternating values": single(1, 3, 5, 7, 9),
    "small and large values": single(100, 101, (1 << 31) + 99, (1 << 31) + 100),
    "many containers": [run(3 * at, 3 * at + 1, at=at * 1_000) for at in range(2_000)],
}
BITMAPS = {
    "32-bit values": [run(0, 10)],
    "empty": [],
    "spread values": [run(0, 10, at=high * BITMAP) for high in range(10)],
}
BLOBS = [
    ("some-blob", b"abcdefghi"),
    ("some-other-blob", "binary \0 data 🤯 that is not very, very, very, very long".encode()),
]


def positions_of(runs: list[range]) -> BitMap64:
    return BitMap64([position for each in runs for position in each])


def sealed(vector: bytes) -> bytes:
    checked = b"\xd1\xd3\x39\x64" + vector
    return struct.pack(">I", len(checked)) + checked + struct.pack(">I", zlib.crc32(checked))


def reader(payload: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, length: payload[offset : offset + length]


# What Java Iceberg writes


class TestBesideJavaIceberg:
    pytestmark = needs_java

    @pytest.mark.parametrize("name", POSITION_INDEXES)
    def test_a_vector_is_read_and_written_to_the_same_bytes(
        self, java: JavaIceberg, name: str, scoreboard: Record
    ) -> None:
        positions = positions_of(POSITION_INDEXES[name])

        blob = java.write_position_index(POSITION_INDEXES[name])

        assert decode_vector(blob) == positions
        assert encode_vector(positions) == blob
        scoreboard(f"R22 vector of Java Iceberg, {name}: identical")

    @pytest.mark.parametrize("name", BITMAPS)
    def test_a_bitmap_without_packed_runs_is_read(
        self, java: JavaIceberg, name: str, scoreboard: Record
    ) -> None:
        vector = java.write_bitmap(BITMAPS[name])

        assert decode_vector(sealed(vector)) == positions_of(BITMAPS[name])
        scoreboard(f"R22 bitmap of Java Iceberg, {name}: read")

    def test_a_bitmap_that_iceberg_refuses_is_corruption(self, java: JavaIceberg) -> None:
        last = range((1 << 32) - 11, 1 << 32)
        positions = [high * BITMAP + low for high in last for low in last]
        vector = BitMap64(positions, optimize=False).serialize()

        assert java.refusal_of_bitmap(vector) == "Invalid unsigned key: -11"
        with pytest.raises(Corruption, match="marks row"):
            decode_vector(sealed(vector))

    @pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "packed"])
    @pytest.mark.parametrize("blobs", [[], BLOBS], ids=["empty", "two blobs"])
    @pytest.mark.parametrize("created_by", [None, "Test 1234"])
    def test_the_footer_of_a_puffin_file_is_read_and_written_to_the_same_bytes(
        self,
        java: JavaIceberg,
        scoreboard: Record,
        *,
        blobs: list[tuple[str, bytes]],
        created_by: str | None,
        is_packed: bool,
    ) -> None:
        payload = java.write_puffin(blobs, created_by=created_by, is_packed=is_packed)

        footer = read_puffin_footer(reader(payload), len(payload), path="golden")

        assert [blob.type for blob in footer.blobs] == [kind for kind, _ in blobs]
        assert payload.endswith(encode_footer(footer))
        begins = max((blob.offset + blob.length for blob in footer.blobs), default=4)
        assert len(payload) == begins + len(encode_footer(footer))
        form = "packed" if is_packed else "plain"
        scoreboard(f"R22 Puffin file of Java Iceberg, {len(blobs)} blobs, {form}: identical")

    def test_blobs_are_where_the_footer_says(self, java: JavaIceberg) -> None:
        plain, packed = (
            java.write_puffin(BLOBS, created_by="test", is_packed=is_packed)
            for is_packed in (False, True)
        )
        plain_footer = read_puffin_footer(reader(plain), len(plain), path="plain")
        packed_footer = read_puffin_footer(reader(packed), len(packed), path="packed")

        for (_, payload), one, other in zip(
            BLOBS, plain_footer.blobs, packed_footer.blobs, strict=True
        ):
            frame = packed[other.offset : other.offset + other.length]
            unpacked = pa.CompressedInputStream(pa.BufferReader(frame), "zstd").read()
            assert unpacked == plain[one.offset : one.offset + one.length] == payload
            assert other.compression_codec == "zstd"
            assert (
                replace(other, offset=one.offset, length=one.length, compression_codec=None) == one
            )


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
