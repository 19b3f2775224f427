"""Puffin files: their bytes, their footer, and what of a hostile one is refused."""

import json
import struct
from collections.abc import Callable

import pytest
from pyroaring import BitMap64

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.model.data_file import VectorRef
from neve.sstable import puffin
from neve.sstable.deletion_vector import encode_vector, read_vector
from neve.sstable.puffin import (
    BlobPlace,
    PuffinBlob,
    PuffinFooter,
    encode_footer,
    read_puffin_footer,
    read_puffin_vector,
    write_puffin,
)
from neve.storage.memory_store import MemoryStore
from neve.storage.table_paths import TablePaths

VECTORS = {
    "s3://lake/b.parquet": BitMap64([1, 1 << 33]),
    "s3://lake/a.parquet": BitMap64(range(10)),
}


def reader(payload: bytes) -> Callable[[int, int], bytes]:
    def read_at(offset: int, length: int) -> bytes:
        assert offset >= 0
        assert 0 <= length <= len(payload)
        return payload[offset : offset + length]

    return read_at


def footer_of(payload: bytes) -> PuffinFooter:
    return read_puffin_footer(reader(payload), len(payload), path="v.puffin")


def file_with(footer: bytes, *, size: int | None = None, flags: int = 0) -> bytes:
    """Return a Puffin file of one blob of ten bytes with this payload of a footer."""
    payload_bytes = len(footer) if size is None else size
    return (
        b"PFA1" + b"." * 10 + b"PFA1" + footer + struct.pack("<iI", payload_bytes, flags) + b"PFA1"
    )


def blob_with(**members: object) -> bytes:
    blob = {
        "type": "some-blob",
        "fields": [1],
        "snapshot-id": 2,
        "sequence-number": 1,
        "offset": 4,
        "length": 10,
    }
    return json.dumps({"blobs": [{**blob, **members}]}).encode()


# What is written


def test_the_bytes_of_a_file_are_those_of_the_specification() -> None:
    payload, places = write_puffin({"data/a.parquet": BitMap64([1, 3, 5])}, created_by="neve 0.1")

    blob = encode_vector(BitMap64([1, 3, 5]))
    footer = (
        b'{"blobs":[{"type":"deletion-vector-v1","fields":[2147483645],"snapshot-id":-1,'
        b'"sequence-number":-1,"offset":4,"length":46,"properties":'
        b'{"referenced-data-file":"data/a.parquet","cardinality":"3"}}],'
        b'"properties":{"created-by":"neve 0.1"}}'
    )
    assert payload == (
        b"PFA1" + blob + b"PFA1" + footer + struct.pack("<i", len(footer)) + b"\0\0\0\0PFA1"
    )
    assert places == {"data/a.parquet": BlobPlace(offset=4, length=46, cardinality=3)}


def test_each_vector_is_where_its_place_says() -> None:
    payload, places = write_puffin(VECTORS, created_by="neve")
    store = MemoryStore()
    store.put("tables/1/deletes/v.puffin", payload)

    assert places.keys() == VECTORS.keys()
    for data_file, place in places.items():
        ref = VectorRef(
            path="deletes/v.puffin",
            offset=place.offset,
            length=place.length,
            cardinality=place.cardinality,
        )
        assert read_vector(store, TablePaths("1"), ref) == VECTORS[data_file]


def test_the_order_of_the_vectors_does_not_change_the_bytes() -> None:
    turned = dict(reversed(VECTORS.items()))

    assert write_puffin(VECTORS, created_by="n") == write_puffin(turned, created_by="n")


def test_a_vector_that_marks_nothing_is_not_written() -> None:
    with pytest.raises(InvalidArgument, match=r"a\.parquet marks no row"):
        write_puffin({"a.parquet": BitMap64()}, created_by="neve")


def test_a_name_without_utf_8_is_not_written() -> None:
    with pytest.raises(InvalidArgument, match="cannot be stored"):
        write_puffin({"\ud800": BitMap64([1])}, created_by="neve")


# What is read


def test_the_footer_tells_of_every_vector() -> None:
    payload, places = write_puffin(VECTORS, created_by="neve 0.1")

    footer = footer_of(payload)

    assert footer.properties == {"created-by": "neve 0.1"}
    for blob in footer.blobs:
        assert blob.is_vector
        assert blob.referenced_data_file is not None
        place = places[blob.referenced_data_file]
        assert (blob.offset, blob.length, blob.cardinality) == (
            place.offset,
            place.length,
            place.cardinality,
        )
        found = read_puffin_vector(reader(payload), blob, path="v.puffin")
        assert found == VECTORS[blob.referenced_data_file]


def test_a_footer_comes_back_as_it_was() -> None:
    blob = PuffinBlob(
        type="some-blob",
        fields=(1, 2),
        snapshot_id=3,
        sequence_number=4,
        offset=4,
        length=10,
        compression_codec="zstd",
        properties={"ndv": "7"},
    )
    footer = PuffinFooter(blobs=(blob,), properties={"ü": "ö"})

    assert footer_of(b"PFA1" + b"." * 10 + encode_footer(footer)) == footer


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"PFA1PFA1",
        b"PFA2" + file_with(b'{"blobs":[]}')[4:],
        file_with(b'{"blobs":[]}')[:-1] + b"2",
        file_with(b'{"blobs":[]}', size=11),
        file_with(b'{"blobs":[]}', size=-1),
        file_with(b'{"blobs":[]}', size=0),
        file_with(b'{"blobs":[]}', size=2**31 - 1),
        file_with(b'{"blobs":[]}', flags=1),
        file_with(b'{"blobs":[]}', flags=1 << 31),
        file_with(b"[" * 100_000),
        file_with(b"\xff\xfe"),
        file_with(b"[]"),
        file_with(b"{}"),
        file_with(b'{"blobs":{}}'),
        file_with(b'{"blobs":[1]}'),
        file_with(b'{"blobs":[],"properties":{"a":1}}'),
        file_with(b'{"blobs":[],"properties":{"a":"\\ud800"}}'),
        file_with(b'{"blobs":[],"properties":[]}'),
    ],
    ids=range(19),
)
def test_a_wrong_footer_is_corruption(payload: bytes) -> None:
    with pytest.raises(Corruption) as caught:
        footer_of(payload)

    assert caught.value.path == "v.puffin"


@pytest.mark.parametrize(
    "members",
    [
        {"offset": -1},
        {"offset": 3},
        {"offset": 5},
        {"offset": 1 << 70},
        {"offset": True},
        {"offset": 4.0},
        {"offset": "4"},
        {"offset": None},
        {"length": -1},
        {"length": 11},
        {"length": 1 << 62},
        {"fields": None},
        {"fields": ["1"]},
        {"fields": [[]]},
        {"type": 1},
        {"snapshot-id": None},
        {"sequence-number": 1.5},
        {"compression-codec": 1},
        {"properties": {"a": None}},
    ],
    ids=str,
)
def test_a_field_of_a_blob_that_does_not_fit_is_corruption(members: dict[str, object]) -> None:
    assert footer_of(file_with(blob_with())).blobs[0].length == 10

    with pytest.raises(Corruption):
        footer_of(file_with(blob_with(**members)))


def test_blobs_that_overlap_are_corruption() -> None:
    two = (
        json.loads(blob_with(length=6))["blobs"]
        + json.loads(blob_with(offset=9, length=5))["blobs"]
    )

    with pytest.raises(Corruption, match="a blob cannot have"):
        footer_of(file_with(json.dumps({"blobs": two}).encode()))


def test_a_footer_that_is_too_large_is_neither_written_nor_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload, _ = write_puffin(VECTORS, created_by="neve")
    monkeypatch.setattr(puffin, "FOOTER_BYTES_MAX", 100)

    with pytest.raises(LimitExceeded):
        write_puffin(VECTORS, created_by="neve")
    with pytest.raises(LimitExceeded):
        footer_of(payload)


@pytest.mark.parametrize("said", ["2", "", "-3", "3.0", "٣", "9" * 40], ids=range(6))
def test_a_wrong_cardinality_in_the_footer_is_corruption(said: str) -> None:
    payload, _ = write_puffin({"a": BitMap64([1, 3, 5])}, created_by="neve")
    (blob,) = footer_of(payload).blobs
    changed = PuffinBlob(
        type=blob.type,
        fields=blob.fields,
        snapshot_id=-1,
        sequence_number=-1,
        offset=blob.offset,
        length=blob.length,
        properties={**blob.properties, "cardinality": said},
    )

    with pytest.raises(Corruption, match="marks 3 rows, and the footer says"):
        read_puffin_vector(reader(payload), changed, path="v.puffin")


@pytest.mark.parametrize(
    "members", [{}, {"type": "deletion-vector-v1", "compression-codec": "zstd"}]
)
def test_another_blob_is_no_vector(members: dict[str, str]) -> None:
    payload = file_with(blob_with(**members))

    with pytest.raises(Corruption, match="is not a deletion vector"):
        read_puffin_vector(reader(payload), footer_of(payload).blobs[0], path="v.puffin")


def test_a_vector_beyond_the_limit_is_refused_before_it_is_read() -> None:
    blob = PuffinBlob(
        type="deletion-vector-v1",
        fields=(),
        snapshot_id=-1,
        sequence_number=-1,
        offset=4,
        length=1 << 40,
    )

    with pytest.raises(LimitExceeded):
        read_puffin_vector(reader(b""), blob, path="v.puffin")
