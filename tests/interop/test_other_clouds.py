"""A lake on Azure, as far as its emulator goes: contracts, a table's life, a takeover."""

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

import neve
from neve.storage.bucket_log import BucketLogs
from neve.storage.object_store import AppendFiles, ObjectStore
from neve.storage.open_store import open_store, probe_conditional_writes, probe_listing
from neve.testing.append_contract import AppendFilesContract
from neve.testing.simulated_clock import SeededIds
from neve.testing.store_contract import ObjectStoreContract
from tests.interop.emulators import Emulated, azurite

BY_HAND = neve.TableOptions(background=False)


@pytest.fixture(scope="module")
def emulated() -> Iterator[Emulated]:
    """Yield Azurite, where its command is named."""
    if not os.environ.get("NEVE_AZURITE"):
        pytest.skip("NEVE_AZURITE is not set: `make interop` installs Azurite, with npm")
    with azurite() as emulated:
        yield emulated


@pytest.fixture
def place(emulated: Emulated) -> Emulated:
    """Return a part of the bucket that no other test uses."""
    location = f"{emulated.location}/{uuid4()}"
    return Emulated(location=location, storage_options=emulated.storage_options)


def store_at(place: Emulated) -> ObjectStore:
    return open_store(place.location, storage_options=place.storage_options)


class TestObjects(ObjectStoreContract):
    @pytest.fixture
    def store(self, place: Emulated) -> ObjectStore:
        return store_at(place)


class TestLogs(AppendFilesContract):
    reserves_space = False

    @pytest.fixture
    def files(self, place: Emulated) -> tuple[AppendFiles, ObjectStore]:
        logs = BucketLogs(store_at(place), ids=SeededIds())
        return logs, logs


def test_it_keeps_conditions_and_lists_in_order(place: Emulated) -> None:
    store = store_at(place)
    probe_conditional_writes(store, SeededIds())
    probe_listing(store, SeededIds())


def test_a_table_lives_its_life(place: Emulated) -> None:
    options = {"storage_options": place.storage_options}
    with neve.open(place.location, **options) as lake:  # type: ignore[arg-type]
        table = lake.create_table("a.b", {"id": int, "v": int}, "id", options=BY_HAND)
        table.upsert([{"id": number, "v": number} for number in range(1_000)])
        first = table.flush()
        table.put({"id": 5, "v": 55})
        table.delete(6)
        table.flush()
        table.compact(full=True)
        table.put({"id": 2_000, "v": 1})
        assert table.get(5) == {"id": 5, "v": 55}
        assert table.scan().count() == 1_000
        assert table.at(version=first).get(6) == {"id": 6, "v": 6}
        assert table.verify().is_sound
        assert table.stats().request_cost > 0

        with neve.open(place.location, **options) as other:  # type: ignore[arg-type]
            taken = other.table("a.b", options=BY_HAND)
            with pytest.raises(neve.Fenced):
                table.put({"id": 1, "v": 1})
            assert taken.get(2_000) == {"id": 2_000, "v": 1}
            taken.expire(keep_last=1)
            taken.collect_garbage(dry_run=False)
            assert taken.verify().row_count == 999


def test_wrong_credentials_are_named_without_their_values(place: Emulated) -> None:
    wrong = "d3JvbmcgY3JlZGVudGlhbHM="
    given = {**place.storage_options, "account_key": wrong, "patience_seconds": "2"}

    with pytest.raises(neve.Unavailable, match="credentials") as refusal:
        neve.open(place.location, storage_options=given)

    assert wrong not in f"{refusal.value!r} {refusal.value}"
