"""`neve inspect wal` on logs and MANIFESTs that the real RocksDB and LevelDB wrote."""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import rocksdict
from click.testing import CliRunner

from neve.cli.main import cli
from tests.interop.foreign_logs import leveldb


def document(path: Path) -> Mapping[str, Any]:
    result = CliRunner().invoke(cli, ["inspect", "wal", "--json", "--strict", str(path)])
    assert result.exit_code == 0, result.stderr
    parsed: Mapping[str, Any] = json.loads(result.stdout)
    return parsed


def drawing(path: Path) -> str:
    result = CliRunner().invoke(cli, ["inspect", "wal", str(path)])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def entries(parsed: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [entry for record in parsed["records"] for entry in record["batch"]["entries"]]


def fields(parsed: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [field for record in parsed["records"] for field in record["edit"]["fields"]]


def named(found: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [field for field in found if field["field"] == name]


def copy_of_open_database(directory: Path) -> Path:
    """Copy the files while the database is open, so that the log still holds the rows.

    Its threads may remove a file meanwhile: then the copy is made again.
    """
    copy = directory.with_name(f"{directory.name}-copy")
    for _ in range(100):
        names = {path.name for path in directory.iterdir()}
        with suppress(shutil.Error):
            shutil.copytree(directory, copy)
            if names == {path.name for path in directory.iterdir()}:
                return copy
        shutil.rmtree(copy)
    raise AssertionError("the database never came to rest")


def only(directory: Path, pattern: str) -> Path:
    *_, path = sorted(directory.glob(pattern))
    return path


def raw_options(*, recycled_logs: int = 0) -> Any:  # noqa: ANN401 - the library has no types
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    if recycled_logs:
        options.set_recycle_log_file_num(recycled_logs)
    return options


def test_every_operation_of_a_rocksdb_batch_is_told(tmp_path: Path) -> None:
    database = rocksdict.Rdict(str(tmp_path / "db"), raw_options())
    database.create_column_family("events", raw_options())
    events = database.get_column_family_handle("events")
    batch = rocksdict.WriteBatch(raw_mode=True)
    batch.put(b"a", b"1")
    batch.delete(b"b")
    batch.delete_range(b"c", b"d")
    batch.put(b"e", b"\x00", events)
    batch.delete(b"f", events)
    batch.delete_range(b"g", b"h", events)
    database.write(batch)
    parsed = document(only(copy_of_open_database(tmp_path / "db"), "*.log"))
    database.close()

    assert (parsed["dialect"], parsed["header"]) == ("rocksdb", "standard")
    told = entries(parsed)
    assert [(each["op"], each["key"]["text"], each.get("column_family")) for each in told] == [
        ("put", "a", None),
        ("delete", "b", None),
        ("delete range", "c", None),
        ("put", "e", 1),
        ("delete", "f", 1),
        ("delete range", "g", 1),
    ]
    assert told[2]["end_key"] == {"text": "d"}
    assert told[3]["value"] == {"hex": "00"}
    assert [each["sequence"] for each in told] == [1, 2, 3, 4, 5, 6]
    assert parsed["end"]["reason"] == "end of file"


def test_long_values_of_rocksdb_are_joined_from_their_fragments(tmp_path: Path) -> None:
    database = rocksdict.Rdict(str(tmp_path / "db"), raw_options())
    values = {b"k%d" % number: bytes([65 + number]) * (number * 20_000) for number in range(8)}
    for key, value in values.items():
        database[key] = value
    parsed = document(only(copy_of_open_database(tmp_path / "db"), "*.log"))
    database.close()

    told = {
        each["key"]["text"].encode(): each["value"]["text"].encode() for each in entries(parsed)
    }
    assert told == values
    assert max(len(record["fragments"]) for record in parsed["records"]) > 4
    at = 0
    for block in parsed["blocks"]:
        for part in block["parts"]:
            assert part["offset"] == at
            at += part["bytes"]
    assert at == parsed["bytes"]


def test_a_recycled_log_of_rocksdb_shows_the_log_it_was_before(tmp_path: Path) -> None:
    options = raw_options(recycled_logs=2)
    database = rocksdict.Rdict(str(tmp_path / "db"), options)
    for round_number in range(6):
        for number in range(400):
            database[b"round %d key %d" % (round_number, number)] = b"x" * 200
        database.flush()
    database[b"last"] = b"row"
    log = only(copy_of_open_database(tmp_path / "db"), "*.log")
    parsed = json.loads(CliRunner().invoke(cli, ["inspect", "wal", "--json", str(log)]).stdout)
    database.close()

    assert parsed["header"] == "recyclable"
    assert parsed["log_number"] == int(log.stem)
    assert entries(parsed)[-1]["key"] == {"text": "last"}
    kinds = {part["kind"] for block in parsed["blocks"] for part in block["parts"]}
    assert "stale" in kinds
    assert parsed["end"]["reason"] in {"stale", "torn tail"}


def test_the_manifest_of_rocksdb_is_told_field_by_field(tmp_path: Path) -> None:
    database = rocksdict.Rdict(str(tmp_path / "db"), raw_options())
    for number in range(100):
        database[b"key %03d" % number] = b"value"
    database.flush()
    database.create_column_family("events", raw_options())
    database.drop_column_family("events")
    copy = copy_of_open_database(tmp_path / "db")
    path = only(copy, "MANIFEST-*")
    told = fields(document(path))
    database.close()

    assert named(told, "unknown") == []
    assert named(told, "unreadable") == []
    assert named(told, "comparator")[0]["name"] == "leveldb.BytewiseComparator"
    assert named(told, "database id")[0]["name"] == (copy / "IDENTITY").read_text().strip()
    assert named(told, "last sequence")[-1]["sequence"] == 100
    (file,) = named(told, "new file")
    sst = only(copy, "*.sst")
    assert file["level"] == 0
    assert file["file"] == int(sst.stem)
    assert file["bytes"] == sst.stat().st_size
    assert file["smallest"]["key"] == {"text": "key 000"}
    assert file["largest"]["key"] == {"text": "key 099"}
    assert (file["first_sequence"], file["last_sequence"]) == (1, 100)
    assert named(told, "add column family")[0]["name"] == "events"
    assert named(told, "drop column family")
    assert "new file  level 0  file" in drawing(path)


def test_logs_and_manifest_of_leveldb_are_told(tmp_path: Path) -> None:
    database = leveldb().DB(str(tmp_path / "db"), create_if_missing=True, write_buffer_size=1 << 16)
    with database.write_batch() as batch:
        batch.put(b"a", b"1")
        batch.delete(b"b")
    for number in range(3_000):
        database.put(b"key %06d" % number, b"v" * 100)
    database.put(b"last", b"\xff")
    copy = copy_of_open_database(tmp_path / "db")
    log = document(only(copy, "*.log"))
    manifest = fields(document(only(copy, "MANIFEST-*")))
    database.close()

    assert (log["dialect"], log["header"]) == ("rocksdb", "standard")
    assert entries(log)[-1]["key"] == {"text": "last"}
    assert entries(log)[-1]["value"] == {"hex": "ff"}
    assert entries(log)[-1]["sequence"] == 3_003
    assert named(manifest, "unknown") == []
    assert named(manifest, "comparator")[0]["name"] == "leveldb.BytewiseComparator"
    on_disk = {int(path.stem) for path in copy.glob("*.ldb")}
    added = {field["file"] for field in named(manifest, "new file")}
    deleted = {field["file"] for field in named(manifest, "deleted file")}
    assert added - deleted <= on_disk
    assert added
