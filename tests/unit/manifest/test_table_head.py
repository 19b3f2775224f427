"""A head is read back as it was written, never goes back in time, and keeps names in bounds."""

import json
from collections.abc import Callable
from dataclasses import fields, replace

import pytest

from neve.errors import Corruption, InvalidArgument
from neve.manifest.table_head import (
    RESERVATION_MS_MAX,
    HeadChange,
    Reservation,
    Retention,
    TableHead,
    intent_key,
    job_key,
    read_number,
    read_tag,
    schema_key,
    spec_key,
    state_key,
    tag_key,
    transaction_key,
    version_key,
)
from tests.unit.manifest.builders import first_head

PLACE = "manifest/version/t1"

HEAD = replace(
    first_head(retention=Retention(versions=3, milliseconds=9)),
    current_version=7,
    oldest_version=4,
    schema_id=2,
    spec_id=1,
    sort_order="a,-b",
    last_transaction_ms=1_000,
    dropped=True,
    flushed_sequence=50,
    last_sequence=60,
    next_log_number=8,
    wal_floor=6,
    writer_epoch=5,
)


def stored(head: TableHead) -> dict[str, object]:
    document = json.loads(head.encode())
    assert isinstance(document, dict)
    return document


def test_a_head_comes_back_from_its_bytes() -> None:
    assert TableHead.decode(HEAD.encode(), path=PLACE) == HEAD


def test_every_fact_of_a_head_is_stored() -> None:
    names = {field.name for field in fields(TableHead)} - {"retention"}

    assert set(stored(HEAD)) == names | {"format", "retention_versions", "retention_ms"}


@pytest.mark.parametrize("name", sorted(set(stored(HEAD)) - {"format"}))
def test_a_head_without_one_of_its_facts_is_corruption(name: str) -> None:
    document = stored(HEAD)
    del document[name]

    with pytest.raises(Corruption, match=name):
        TableHead.decode(json.dumps(document).encode(), path=PLACE)


@pytest.mark.parametrize(("oldest", "current"), [(8, 7), (0, 7), (1, 0)])
def test_versions_that_make_no_sense_are_corruption(oldest: int, current: int) -> None:
    document = stored(HEAD) | {"oldest_version": oldest, "current_version": current}

    with pytest.raises(Corruption, match="are not a range"):
        TableHead.decode(json.dumps(document).encode(), path=PLACE)


def test_a_head_that_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(InvalidArgument, match="flushed_sequence"):
        replace(HEAD, flushed_sequence=1 << 63).encode()
    with pytest.raises(InvalidArgument, match="retention_versions"):
        replace(HEAD, retention=Retention(versions=-1)).encode()


def test_a_commit_that_says_nothing_changes_only_version_and_time() -> None:
    after = HEAD.advanced(HeadChange(), versions=2, now_ms=2_000)

    assert after == replace(HEAD, current_version=9, last_transaction_ms=2_000)


def test_what_a_commit_says_is_in_the_next_head() -> None:
    change = HeadChange(
        schema_id=3,
        spec_id=4,
        sort_order="",
        flushed_sequence=70,
        last_sequence=80,
        next_log_number=10,
        wal_floor=9,
    )

    after = HEAD.advanced(change, versions=0, now_ms=1_000)

    assert (after.schema_id, after.spec_id, after.sort_order) == (3, 4, "")
    assert (after.flushed_sequence, after.last_sequence) == (70, 80)
    assert (after.next_log_number, after.wal_floor) == (10, 9)


def test_what_is_flushed_was_given_out() -> None:
    after = HEAD.advanced(HeadChange(flushed_sequence=70), versions=1, now_ms=0)

    assert after.last_sequence == 70


def test_the_time_of_a_head_does_not_run_backwards() -> None:
    assert HEAD.advanced(HeadChange(), versions=1, now_ms=10).last_transaction_ms == 1_000


def test_keys_sort_as_their_numbers() -> None:
    for key_of in (version_key, state_key, schema_key, spec_key):
        keys = [key_of(number) for number in (0, 1, 9, 10, 99, 100, 2**31 - 1)]
        assert keys == sorted(keys)


@pytest.mark.parametrize("key_of", [tag_key, transaction_key, job_key, intent_key])
@pytest.mark.parametrize("name", ["", "a\nb", "\0", "\x7f", "\ud800", "x" * 256, "é" * 128])
def test_a_name_that_cannot_be_kept_is_refused(key_of: Callable[[str], str], name: str) -> None:
    with pytest.raises(InvalidArgument, match="cannot be the name of a") as caught:
        key_of(name)

    assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize("key_of", [tag_key, transaction_key, job_key, intent_key])
@pytest.mark.parametrize("name", [None, 7, b"gold"], ids=repr)
def test_a_name_that_is_no_text_is_refused(key_of: Callable[[object], str], name: object) -> None:
    with pytest.raises(InvalidArgument, match="is a str, not"):
        key_of(name)


@pytest.mark.parametrize("batch", ["1", None, True, 1.0], ids=repr)
def test_a_batch_that_is_no_whole_number_is_refused(batch: int) -> None:
    with pytest.raises(InvalidArgument, match="batch"):
        HeadChange(application=("spark", batch))


@pytest.mark.parametrize("name", ["a", "über/alles", "x" * 255, "../..", "tag 1"])
def test_other_names_are_kept_as_they_are(name: str) -> None:
    assert tag_key(name) == f"tag/{name}"
    assert job_key(name) != intent_key(name)


@pytest.mark.parametrize("key", ["state/", "state/x", "state/-1", "state/١", "state/" + "1" * 21])
def test_a_key_without_a_number_is_corruption(key: str) -> None:
    with pytest.raises(Corruption):
        read_number(key, prefix="state/")


def test_a_number_is_read_from_its_key() -> None:
    assert read_number(state_key(12), prefix="state/") == 12


@pytest.mark.parametrize("value", [b"", b"x", b"-1", b" 1", b"1" * 21, b"\xff", "١".encode()])
def test_a_tag_that_names_no_version_is_corruption(value: bytes) -> None:
    with pytest.raises(Corruption):
        read_tag(value, path="tag/x")


def test_a_reservation_is_in_force_until_its_time_and_never_longer_than_any_may_be() -> None:
    reservation = Reservation(job_id="j", until_ms=100_000)

    assert reservation.is_in_force(99_999)
    assert reservation.is_in_force(100_000 - RESERVATION_MS_MAX)
    assert not reservation.is_in_force(100_000)
    assert not reservation.is_in_force(100_000 - RESERVATION_MS_MAX - 1)


def test_a_reservation_comes_back_from_its_bytes() -> None:
    reservation = Reservation(job_id="jöb", until_ms=7)

    assert Reservation.decode(reservation.encode(), path=PLACE) == reservation
    with pytest.raises(Corruption):
        Reservation.decode(b'{"format":1,"job_id":7}', path=PLACE)
