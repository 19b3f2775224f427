"""The frame around manifest objects: what it wraps comes back, and any damage is told."""

import struct

import google_crc32c
import pytest
from google.protobuf.message import Message

from neve.errors import Corruption, LimitExceeded
from neve.manifest import documents as frame
from neve.manifest import store_pb2
from neve.manifest.documents import FORMAT, HEADER_BYTES, FrameKind, decode_frame, encode_frame

PATH = "manifest/t/HEAD"


def head_message() -> store_pb2.Head:
    return store_pb2.Head(epoch=7, segment=3, transaction=b"t" * 16, checkpoint=2, nonce=b"n" * 16)


def sealed(body: bytes) -> bytes:
    """Close a body with the checksum that belongs to it."""
    return body + struct.pack("<I", google_crc32c.value(body))


def framed(payload: bytes, *, kind: int = FrameKind.HEAD, format_number: int = FORMAT) -> bytes:
    return sealed(struct.pack("<4sBBI", b"NEVE", kind, format_number, len(payload)) + payload)


def refusal(damaged: bytes) -> Corruption:
    with pytest.raises(Corruption) as caught:
        decode_frame(damaged, FrameKind.HEAD, store_pb2.Head, path=PATH)
    assert caught.value.path == PATH
    assert caught.value.hint
    return caught.value


def test_every_missing_byte_is_noticed() -> None:
    whole = encode_frame(FrameKind.HEAD, head_message())

    for length in range(len(whole)):
        assert refusal(whole[:length]).message


@pytest.mark.parametrize("surplus", [b"\0", b"NEVE", b"x" * 100])
def test_a_surplus_byte_is_noticed(surplus: bytes) -> None:
    whole = encode_frame(FrameKind.HEAD, head_message())

    assert refusal(whole + surplus).message
    assert refusal(surplus + whole).message


def test_every_flipped_bit_is_noticed() -> None:
    whole = encode_frame(FrameKind.HEAD, head_message())

    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        assert refusal(bytes(damaged)).message


def test_an_unknown_format_is_refused_and_says_which_neve_to_use() -> None:
    newer = framed(head_message().SerializeToString(), format_number=FORMAT + 1)

    error = refusal(newer)

    assert f"format {FORMAT + 1}" in error.message
    assert "newer" in (error.hint or "")


def test_an_object_of_another_kind_is_refused() -> None:
    segment = encode_frame(FrameKind.SEGMENT, store_pb2.Segment(number=3))

    assert "kind 2" in refusal(segment).message


def test_a_foreign_file_is_refused() -> None:
    assert "not a manifest object" in refusal(b"PAR1" + bytes(100)).message


def test_a_whole_frame_around_no_message_is_refused() -> None:
    # Field 2 as a length-delimited one that ends behind the payload.
    assert "cannot be read" in refusal(framed(b"\x12\xff")).message


def test_a_length_that_claims_gigabytes_allocates_nothing() -> None:
    claims = sealed(struct.pack("<4sBBI", b"NEVE", FrameKind.HEAD, FORMAT, 0xFFFF_FFFF))

    assert "claims another length" in refusal(claims).message


def test_a_frame_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = framed(head_message().SerializeToString())
    monkeypatch.setattr(frame, "FRAME_BYTES_MAX", len(whole) - HEADER_BYTES - 5)

    assert "larger than allowed" in refusal(whole).message


def test_a_message_that_is_too_large_is_refused_with_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame, "FRAME_BYTES_MAX", 100)
    large = store_pb2.Segment(records=[store_pb2.Record(key="k", value=bytes(101))])

    with pytest.raises(LimitExceeded) as caught:
        encode_frame(FrameKind.SEGMENT, large)

    assert caught.value.limit == 100
    assert caught.value.actual == large.ByteSize()
    assert caught.value.hint


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (FrameKind.HEAD, head_message()),
        (FrameKind.HEAD, store_pb2.Head()),
        (FrameKind.SEGMENT, store_pb2.Segment(records=[store_pb2.Record(key="k", value=b"")])),
        (FrameKind.LEASE, store_pb2.Lease(id=b"l", version=9, expires_ms=1)),
    ],
    ids=["head", "empty head", "segment", "lease"],
)
def test_what_is_wrapped_comes_back(kind: FrameKind, message: Message) -> None:
    wrapped = encode_frame(kind, message)

    assert decode_frame(wrapped, kind, type(message), path=PATH) == message


def test_the_layout_is_the_one_on_disk() -> None:
    payload = head_message().SerializeToString()

    wrapped = encode_frame(FrameKind.HEAD, head_message())

    assert wrapped[:HEADER_BYTES] == b"NEVE\x01\x01" + struct.pack("<I", len(payload))
    assert wrapped == framed(payload)
