"""`verify` sees everything that a table consists of, or says what it did not see."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import neve
from neve.errors import Corruption
from neve.iceberg.plain_reader import PlainReader
from neve.sstable.data_file_reader import DataFileReader

_COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
_SCHEMA = pa.schema(_COLUMNS)
_OPTIONS = neve.TableOptions(background=False)


@pytest.fixture(params=["2", "3"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Make a lake with a table of two published snapshots, vectors, an index and logged rows."""
    with neve.open(tmp_path) as lake:
        lake.create_table(
            "shop.orders",
            schema=_SCHEMA,
            primary_key=["id"],
            properties={"format-version": request.param},
        )
        table = lake.table("shop.orders", options=_OPTIONS)
        table.upsert([{"id": at, "name": f"n{at}"} for at in range(100)])
        table.flush()
        table.upsert([{"id": at, "name": "new"} for at in range(40, 60)])
        table.delete(99)
        table.flush()
        table.iceberg_metadata()
        table.put({"id": 1_000, "name": "logged"})
    return tmp_path


@pytest.fixture
def table(folder: Path) -> Iterator[neve.Table]:
    with neve.open(folder) as lake, lake.table("shop.orders", read_only=True) as table:
        yield table


def _one(folder: Path, pattern: str) -> Path:
    return max(folder.glob(f"tables/*/{pattern}"))


def _cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _turn_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def test_a_sound_table_is_reported_with_everything_that_was_read(table: neve.Table) -> None:
    report = table.verify(independent=True)
    assert report.is_sound
    assert report.checked["index files"] == 1, "the other file is too small to have one"
    assert report.file_count == 2
    assert report.checked["logs"] >= 1
    assert report.checked["logged rows"] == 1
    assert report.checked["published snapshots"] == 2
    assert report.checked["manifests"] == 3
    assert report.checked["leftover files"] == 0
    assert report.checked["independently read rows"] == report.row_count == 99
    assert report.unseen == ()
    assert "sound" in repr(report)


@pytest.mark.parametrize("damage", [_cut_in_half, _turn_a_byte, Path.unlink])
@pytest.mark.parametrize(
    "pattern",
    ["metadata/snap-*.avro", "metadata/m-*.avro", "metadata/v3.metadata.json"],
)
def test_damaged_published_metadata_is_reported(
    folder: Path, table: neve.Table, pattern: str, damage: Callable[[Path], None]
) -> None:
    path = _one(folder, pattern)
    damage(path)
    with pytest.raises(Corruption, match="published metadata") as caught:
        table.verify()
    assert path.name in str(caught.value.path)


@pytest.mark.parametrize("pattern", ["metadata/m-*.avro", "metadata/snap-*.avro"])
def test_no_turned_byte_of_a_manifest_passes(folder: Path, table: neve.Table, pattern: str) -> None:
    path = _one(folder, pattern)
    content = path.read_bytes()
    for at in range(0, len(content), max(1, len(content) // 20)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(Corruption, match="published metadata"):
            table.verify()


def test_a_damaged_document_that_the_hint_does_not_name_is_reported(
    folder: Path, table: neve.Table
) -> None:
    _cut_in_half(min(folder.glob("tables/*/metadata/v*.metadata.json")))
    with pytest.raises(Corruption, match="published metadata"):
        table.verify()


def test_a_hint_that_names_an_older_document_is_said(folder: Path, table: neve.Table) -> None:
    hint = _one(folder, "metadata/version-hint.text")
    newest = int(hint.read_text())
    hint.write_text(str(newest - 1), encoding="utf-8")
    assert any(f"document {newest}:" in words for words in table.verify().unseen)


def test_a_version_that_is_not_published_is_said_however_many_documents_there_are(
    folder: Path,
) -> None:
    with neve.open(folder) as lake:
        for at in range(5):
            described = lake.load_table("shop.orders")
            described.set_properties({"comment": str(at)})
            described.iceberg_metadata()
        on_demand = neve.TableOptions(background=False, iceberg_publish="demand")
        with lake.table("shop.orders", options=on_demand) as table:
            version = table.flush()
            assert any(
                f"published rows of version {version}: " in words for words in table.verify().unseen
            )


def test_a_missing_mark_of_the_log_is_said(folder: Path, table: neve.Table) -> None:
    _one(folder, "wal.mark").unlink()
    assert any("wal.mark" in words for words in table.verify().unseen)


@pytest.mark.parametrize("content", [None, b"", b"three"])
def test_a_hint_that_names_no_document_is_reported(
    folder: Path, table: neve.Table, content: bytes | None
) -> None:
    hint = _one(folder, "metadata/version-hint.text")
    if content is None:
        hint.unlink()
    else:
        hint.write_bytes(content)
    with pytest.raises(Corruption, match=r"version-hint\.text"):
        table.verify()


def test_a_damaged_index_file_is_reported(folder: Path, table: neve.Table) -> None:
    path = _one(folder, "index/*.index")
    _turn_a_byte(path)
    with pytest.raises(Corruption, match="index file is damaged") as caught:
        table.verify()
    assert path.name in str(caught.value.path)


def test_a_missing_index_file_is_said_to_be_unseen(folder: Path, table: neve.Table) -> None:
    _one(folder, "index/*.index").unlink()
    report = table.verify()
    assert report.checked["index files"] == 0
    assert any("index file" in each for each in report.unseen)


def test_a_damaged_log_is_reported(folder: Path, table: neve.Table) -> None:
    logs = sorted(folder.glob("tables/*/wal/*/*.wal"))
    held = next(path for path in logs if b"logged" in path.read_bytes())
    content = bytearray(held.read_bytes())
    content[content.index(b"logged")] ^= 0xFF
    held.write_bytes(content)
    with pytest.raises(Corruption, match=r"\.wal"):
        table.verify()


def test_a_damaged_lease_is_reported(folder: Path, table: neve.Table) -> None:
    snapshot = table.snapshot()
    (lease,) = (each for each in folder.glob("manifest/version/*/leases/*") if each.name != ".lock")
    _cut_in_half(lease)
    with pytest.raises(Corruption, match="lease cannot be read"):
        table.verify()
    snapshot.close()


def test_files_that_nothing_reaches_are_counted_and_are_not_an_error(
    folder: Path, table: neve.Table
) -> None:
    left = _one(folder, "data/*.parquet").with_name(f"{'a' * 32}.parquet")
    left.write_bytes(b"left behind")
    report = table.verify()
    assert report.checked["leftover files"] == 1
    assert report.checked["leftover bytes"] == len(b"left behind")


def test_files_that_others_left_beside_those_of_the_table_are_said_to_be_unseen(
    folder: Path, table: neve.Table
) -> None:
    place = _one(folder, "data/*.parquet")
    place.with_name("mine.parquet").write_bytes(b"not neve's")
    place.with_name("yours.csv").write_bytes(b"not neve's")

    report = table.verify()

    assert report.is_sound
    assert report.unseen == ("2 files that neve did not name, such as data/mine.parquet",)


def test_a_table_that_was_never_published_is_said_to_be_unseen(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        lake.create_table("a.t", schema=_SCHEMA, primary_key=["id"])
        options = neve.TableOptions(background=False, iceberg_publish="demand")
        table = lake.table("a.t", options=options)
        table.put({"id": 1, "name": "a"})
        table.flush()
        assert any("not been published" in each for each in table.verify().unseen)


def test_nan_values_are_the_same_for_the_independent_reader(tmp_path: Path) -> None:
    nan = float("nan")
    columns = {"id": int, "f": float, "f4": pa.float32(), "l": list[float], "m": dict[str, float]}
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.t", columns, primary_key="id", options=_OPTIONS)
        table.upsert(
            [{"id": at, "f": nan, "f4": nan, "l": [nan], "m": {"a": nan}} for at in (1, 2)]
        )
        table.put({"id": 3})
        table.flush()
        assert table.verify(independent=True).checked["independently read rows"] == 3


def test_the_metadata_of_a_copied_lake_is_unseen_until_it_is_published_there(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("backup") / "lake"
    shutil.copytree(folder, copy)
    with neve.open(copy) as lake, lake.table("shop.orders", options=_OPTIONS) as table:
        (before,) = (each for each in table.verify().unseen if "published metadata" in each)
        table.iceberg_metadata()
        after = table.verify(independent=True)
    assert str(folder) in before
    assert after.checked["published snapshots"] == 2


def test_the_metadata_of_another_table_is_reported(folder: Path) -> None:
    with neve.open(folder) as lake:
        other = lake.create_table("shop.other", schema=_SCHEMA, primary_key=["id"])
        other.iceberg_metadata()
        mine = _one(folder, "metadata/v3.metadata.json").parent
        shutil.rmtree(mine)
        shutil.copytree(folder / "tables" / other.table_id / "metadata", mine)
        with (
            lake.table("shop.orders", read_only=True) as table,
            pytest.raises(Corruption, match="it is of table"),
        ):
            table.verify()


def test_a_document_of_an_expired_version_is_unseen_and_not_damaged(tmp_path: Path) -> None:
    options = neve.TableOptions(background=False, iceberg_publish="demand")
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.t", {"id": int}, primary_key="id", options=options)
        table.iceberg_metadata()
        for at in range(3):
            table.put({"id": at})
            table.flush()
        table.iceberg_metadata()
        table.put({"id": 4})
        current = table.flush()
        table.expire(keep_last=1)
        unseen = table.verify(independent=True).unseen
    assert f"published rows of version {current}: the newest document is of version 4" in unseen
    assert "rows, independently: the published version 4 has expired since" in unseen


def test_a_document_that_a_tag_put_ahead_of_its_version_is_the_current_one(tmp_path: Path) -> None:
    options = neve.TableOptions(background=False, iceberg_publish="demand")
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.t", {"id": int}, primary_key="id", options=options)
        for tag in ("a", "b", "c"):
            table.tag(tag)
            table.iceberg_metadata()
        table.put({"id": 1})
        current = table.flush()
        unseen = table.verify().unseen
    assert f"published rows of version {current}: the newest document is of version 1" in unseen


def test_a_problem_comes_with_its_own_hint(folder: Path, table: neve.Table) -> None:
    _cut_in_half(_one(folder, "metadata/snap-*.avro"))
    with pytest.raises(Corruption) as caught:
        table.verify()
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("Rows are not affected. Publish the table again")


def test_the_independent_reader_notices_other_rows(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PlainReader._positions
    monkeypatch.setattr(PlainReader, "_positions", lambda *given: real(*given) - np.uint64(1))
    assert table.verify().is_sound
    with pytest.raises(Corruption, match="independent reader finds other values"):
        table.verify(independent=True)


def test_the_independent_reader_notices_keys_that_are_there_twice(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "neve.iceberg.published_check._Published._compare_column", lambda *_given: None
    )
    monkeypatch.setattr(
        PlainReader, "_positions", lambda *given: np.arange(given[1].row_count, dtype=np.uint64)
    )
    with pytest.raises(Corruption, match="more than one live row"):
        table.verify(independent=True)


@pytest.mark.parametrize("at_once", [16, 4_000_000])
def test_keys_with_two_live_rows_are_found_however_few_are_compared_at_once(
    table: neve.Table, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("neve.engine.verification._KEYS_AT_ONCE", at_once)
    assert table.verify().is_sound
    monkeypatch.setattr("neve.table.table_files.TableFiles.keep_mask", lambda *_given: None)
    with pytest.raises(Corruption) as caught:
        table.verify()
    notes = "".join(caught.value.__notes__)
    found = [int(n) for n in re.findall(r"MANIFEST-V10: (\d+) keys", notes)]
    assert sum(found) == 20
    assert (len(found) > 1) == (at_once == 16)


def test_keys_of_files_that_all_overlap_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with neve.open(tmp_path) as lake:
        lake.create_table("a.t", schema=_SCHEMA, primary_key=["id"])
        table = lake.table("a.t", options=_OPTIONS)
        for start in range(12):
            table.upsert([{"id": start + 100 * at, "name": "a"} for at in range(10)])
            table.flush()
        reads: list[int] = []
        real = DataFileReader.keys_at

        def counted(
            self: DataFileReader, positions: "np.ndarray[tuple[int], np.dtype[np.int64]]"
        ) -> object:
            reads.append(len(positions))
            return real(self, positions)

        monkeypatch.setattr(DataFileReader, "keys_at", counted)
        report = table.verify()
        assert report.file_count == 12
        assert reads == [10] * 12


def test_progress_of_a_verification_reaches_its_end(table: neve.Table) -> None:
    told: list[tuple[int, int]] = []
    report = table.verify(progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (report.byte_count, report.byte_count)
