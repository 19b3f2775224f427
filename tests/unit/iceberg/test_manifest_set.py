"""What a commit does to manifests: its cost follows the change."""

from pathlib import Path

import pytest

from neve.iceberg.manifest_set import SMALL_MANIFESTS_MAX
from tests.interop.iceberg_walk import read_avro
from tests.unit.iceberg.published_lake import PublishedLake


def manifests(lake: PublishedLake) -> list[dict[str, object]]:
    location = lake.document()["snapshots"][-1]["manifest-list"]
    return read_avro(location)[1]


def statuses(manifest: dict[str, object]) -> list[int]:
    return [entry["status"] for entry in read_avro(str(manifest["manifest_path"]))[1]]


def test_an_append_adds_one_manifest_and_carries_the_others(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path)
    lake.commit(1)
    before = manifests(lake)
    lake.commit(2)

    assert manifests(lake)[:1] == before
    assert [statuses(each) for each in manifests(lake)] == [[1], [1]]
    assert len(lake.names("m-3-*")) == 1
    lake.close()


def test_an_update_replaces_the_vector_of_a_file_and_leaves_data_manifests_alone(
    tmp_path: Path,
) -> None:
    lake = PublishedLake(tmp_path)
    lake.commit(1, 2, 3)
    lake.commit(4)
    lake.commit(1)
    before = manifests(lake)
    lake.commit(2)

    after = manifests(lake)
    data = [each for each in after if each["content"] == 0]
    deletes = [each for each in after if each["content"] == 1]
    assert [each for each in before if each["content"] == 0] == data[:3]
    assert [statuses(each) for each in deletes] == [[2], [1]]
    lake.commit(5)
    assert [statuses(each) for each in manifests(lake) if each["content"] == 1] == [[1]]
    lake.close()


def test_a_compaction_rewrites_only_manifests_of_its_inputs(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path)
    for key in range(3):
        lake.commit(key)
    lake.table.compact(full=True)

    assert [statuses(each) for each in manifests(lake)] == [[2], [2], [2], [1]]
    lake.commit(9)
    assert [statuses(each) for each in manifests(lake)] == [[1], [1]]
    lake.close()


def test_many_small_manifests_become_one(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path)
    for key in range(SMALL_MANIFESTS_MAX + 3):
        lake.commit(key)

    found = manifests(lake)
    assert len(found) < 4
    assert found[0]["existing_files_count"] == SMALL_MANIFESTS_MAX + 1
    assert found[0]["min_sequence_number"] == 2
    assert lake.read() == list(range(SMALL_MANIFESTS_MAX + 3))
    lake.close()


def test_a_manifest_holds_a_bounded_number_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neve.iceberg.manifest_set.MANIFEST_ENTRIES_MAX", 4)
    monkeypatch.setattr("neve.iceberg.manifest_set.SMALL_MANIFESTS_MAX", 8)
    lake = PublishedLake(tmp_path)
    for key in range(30):
        lake.commit(key)

    counts = [len(statuses(each)) for each in manifests(lake)]
    assert max(counts) == 4
    assert sum(counts) == 30
    assert lake.read() == list(range(30))
    lake.close()
