"""Versions and edits survive their bytes, and no bytes at all give an untyped error."""

import struct

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import Corruption
from neve.manifest.invariants import check_added, check_edit, check_version
from neve.manifest.mrub import HEADER_BYTES, TRAILER_BYTES, decode_mrub, encode_mrub
from neve.manifest.version_codec import decode_edit, decode_version, encode_edit, encode_version
from neve.model.version import Version, VersionEdit, apply_edit
from neve.testing.strategies import edit_histories, versions

PLACE = "manifest/version/1/segments/seg-1"


def reframed(payload: bytes) -> bytes:
    """Frame a payload as if a neve had written it."""
    body = struct.pack("<4sBI", b"MRUB", 2, len(payload)) + payload
    return body + struct.pack("<I", google_crc32c.value(body))


@st.composite
def changed_payloads(draw: st.DrawFn, frame: bytes) -> bytes:
    """Draw the payload of a frame with a stretch of it replaced."""
    payload = frame[HEADER_BYTES:-TRAILER_BYTES]
    at = draw(st.integers(0, len(payload)))
    end = draw(st.integers(at, min(len(payload), at + 8)))
    return payload[:at] + draw(st.binary(max_size=8)) + payload[end:]


@given(versions())
def test_a_version_comes_back_from_its_bytes(version: Version) -> None:
    frame = encode_version(version)

    again = decode_version(frame, path=PLACE)

    assert again == version
    assert list(again.files) == list(version.files)
    assert encode_version(again) == frame


@given(edit_histories())
def test_stored_edits_lead_to_the_version_that_the_edits_lead_to(
    edits: tuple[VersionEdit, ...],
) -> None:
    straight: Version | None = None
    stored: Version | None = None
    for edit in edits:
        straight = apply_edit(straight, edit)
        frame = encode_edit(edit)
        again = decode_edit(frame, path=PLACE)
        stored = apply_edit(stored, again)

        assert again == edit
        assert encode_edit(again) == frame

    assert stored == straight


@given(edit_histories())
def test_drawn_histories_obey_the_rules_of_published_versions(
    edits: tuple[VersionEdit, ...],
) -> None:
    version: Version | None = None
    for edit in edits:
        check_edit(version, edit)
        version = apply_edit(version, edit)
        check_added(version, edit)
        check_version(version)


@given(versions(), st.data())
def test_a_changed_state_is_corruption_or_a_version_that_can_be_stored(
    version: Version, data: st.DataObject
) -> None:
    payload = data.draw(changed_payloads(encode_version(version)))

    try:
        changed = decode_version(reframed(payload), path=PLACE)
    except Corruption:
        return
    assert decode_version(encode_version(changed), path=PLACE) == changed


@given(edit_histories(), st.data())
def test_a_changed_edit_is_corruption_or_an_edit_that_can_be_stored(
    edits: tuple[VersionEdit, ...], data: st.DataObject
) -> None:
    payload = data.draw(changed_payloads(encode_edit(edits[-1])))

    try:
        changed = decode_edit(reframed(payload), path=PLACE)
    except Corruption:
        return
    assert decode_edit(encode_edit(changed), path=PLACE) == changed


@given(st.binary(max_size=60), st.sampled_from([b"", b"MRUB\x01", b"MRUB\x02"]))
def test_made_up_bytes_are_corruption_or_a_manifest(tail: bytes, beginning: bytes) -> None:
    try:
        manifest = decode_mrub(beginning + tail, path=PLACE)
    except Corruption:
        return
    assert decode_mrub(encode_mrub(manifest), path=PLACE) == manifest
