"""`neve inspect sst`: data files drawn and as JSON, damaged, cut off and foreign ones."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from neve.cli.main import cli
from neve.sstable.data_file_footer import OpenFooter
from tests.unit.sstable.data_files import PATHS, Files, plain_rows, rows_of_all_types


def inspect(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["inspect", "sst", *map(str, arguments)])


def document(*arguments: str | Path) -> dict[str, object]:
    shown = inspect(*arguments, "--json")
    assert shown.exit_code == 0, shown.stderr
    found: dict[str, object] = json.loads(shown.stdout)
    return found


@pytest.fixture
def data_file(tmp_path: Path) -> Path:
    """Return a data file of 5 rows."""
    schema, rows = plain_rows(5)
    files = Files(schema)
    path = tmp_path / "a.parquet"
    path.write_bytes(files.bytes_of(files.write_one(rows).file))
    return path


def damage(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_a_data_file_is_drawn(data_file: Path) -> None:
    shown = inspect(data_file)

    assert shown.exit_code == 0, shown.stderr
    lines = shown.stdout.splitlines()
    size = data_file.stat().st_size
    assert lines[0].startswith(f"a.parquet  {size:,} bytes · 1 row group · 5 rows · by parquet-cpp")
    assert lines[1:8] == [
        "format       1",
        f"table-id     {PATHS.table_id}",
        "level        0",
        "sequence-min 5",
        "sequence-max 9",
        "key-min      8000000000000000",
        "key-max      800000000000000c",
    ]
    assert lines[8] == "╭─ 3 columns"
    assert "1  id     INT64 · zstd · " in lines[9]
    assert any(" bytes · 0 to 12" in line for line in lines)
    assert any('"name 0" to "name 4"' in line for line in lines)
    assert lines[-4] == "╭─ 1 row group"
    assert lines[-3].startswith("│   0  5 rows · ")
    assert lines[-1] == "✔ 3 chunks and the page indexes after them are whole"


def test_a_data_file_is_one_json_document(tmp_path: Path) -> None:
    schema, rows = plain_rows(200_000)
    files = Files(schema)
    written = files.write_one(rows).file
    path = tmp_path / "b.parquet"
    path.write_bytes(files.bytes_of(written))

    found = document(path)
    few = document(path, "--limit", "1")

    assert found["kind"] == "parquet"
    assert (found["rows"], found["bytes"]) == (200_000, written.file_bytes)
    footer = OpenFooter.read(written, store=files.store, paths=PATHS)
    assert found["footer"] == {
        "offset": footer.offset,
        "bytes": written.file_bytes - footer.offset,
        "crc32c": written.footer_crc,
    }
    assert (found["checksums"], found["problems"]) == ("whole", [])
    columns, groups = found["columns"], found["row_groups"]
    assert isinstance(columns, list)
    assert isinstance(groups, list)
    assert [each["field_id"] for each in columns] == [1, 2, 3]
    assert (columns[0]["min"], columns[0]["max"]) == (0, 599_997)
    assert columns[2]["null_count"] == 0
    assert all(each["encodings"] for each in columns)
    assert sum(each["rows"] for each in groups) == 200_000
    assert len(groups) > 1
    assert few["row_groups"] == groups[:1]
    assert few["omitted_row_groups"] == len(groups) - 1


def test_columns_of_every_type_are_shown_with_their_field_ids(tmp_path: Path) -> None:
    schema, rows = rows_of_all_types(30)
    files = Files(schema)
    path = tmp_path / "c.parquet"
    path.write_bytes(files.bytes_of(files.write_one(rows).file))

    columns = document(path)["columns"]

    assert isinstance(columns, list)
    assert all(isinstance(each["field_id"], int) for each in columns)
    assert {"point.at.day", "list.list.element.n", "map.key_value.key"} <= {
        each["path"] for each in columns
    }
    assert inspect(path).exit_code == 0


def test_a_damaged_chunk_is_named_and_strict_ends_with_five(data_file: Path) -> None:
    damage(data_file, 10)

    shown = inspect(data_file)

    assert shown.exit_code == 0
    assert "│ ✗ column 'id' of row group 0 is damaged, at byte 4" in shown.stdout
    assert "✔" not in shown.stdout
    found = document(data_file)
    assert found["checksums"] == "damaged"
    assert found["problems"] == ["column 'id' of row group 0 is damaged, at byte 4"]
    strict = inspect(data_file, "--strict")
    assert strict.exit_code == 5
    assert "is damaged" in strict.stderr


def test_damage_outside_of_the_chunks_is_seen_too(data_file: Path) -> None:
    found = document(data_file)
    footer, groups = found["footer"], found["row_groups"]
    assert isinstance(footer, dict)
    assert isinstance(groups, list)
    tail_at = groups[0]["offset"] + groups[0]["bytes"]
    assert tail_at < footer["offset"]

    damage(data_file, tail_at)
    assert document(data_file)["problems"] == [f"the page indexes are damaged, at byte {tail_at}"]
    damage(data_file, 0)
    assert "the file does not begin as Parquet does" in inspect(data_file).stdout


@pytest.mark.parametrize("cut", [1, 100, 1_000], ids=["a byte", "some", "much"])
def test_a_file_that_was_cut_off_is_damage(tmp_path: Path, cut: int) -> None:
    schema, rows = plain_rows(3_000)
    files = Files(schema)
    path = tmp_path / "d.parquet"
    path.write_bytes(files.bytes_of(files.write_one(rows).file)[:-cut])

    shown = inspect(path)

    assert shown.exit_code == 5
    assert "it may be cut off" in shown.stderr


def test_a_footer_that_is_no_footer_is_damage(data_file: Path) -> None:
    content = data_file.read_bytes()
    found = document(data_file)["footer"]
    assert isinstance(found, dict)
    start = found["offset"]
    data_file.write_bytes(content[:start] + b"\xff" * (len(content) - 8 - start) + content[-8:])

    shown = inspect(data_file)

    assert shown.exit_code == 5
    assert "the footer cannot be read" in shown.stderr


def test_a_parquet_file_of_others_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "foreign.parquet"
    table = pa.table({"a": range(1_000), "b": [None] * 1_000})
    pq.write_table(table, path, row_group_size=400, write_page_checksum=True)

    found = document(path)

    assert (found["checksums"], found["neve"]) == ("decoded", None)
    assert "all pages can be read; the file has no checksums of neve" in inspect(path).stdout
    damage(path, 60)
    assert document(path)["checksums"] == "damaged"
    assert "✗ row group 0 cannot be read" in inspect(path).stdout


@pytest.mark.parametrize(
    ("content", "looks"),
    [(b"PFA1....", "a Puffin file"), (b"a text of some length", "a text"), (b"\0\1\2", "")],
    ids=["puffin", "text", "bytes"],
)
def test_a_foreign_file_is_refused_with_what_it_looks_like(
    tmp_path: Path, content: bytes, looks: str
) -> None:
    (tmp_path / "file").write_bytes(content)

    refused = inspect(tmp_path / "file")

    assert refused.exit_code == 2
    assert "is not a Parquet file" in refused.stderr
    assert looks in refused.stderr


def test_a_directory_or_a_missing_file_is_a_wrong_call(tmp_path: Path) -> None:
    assert inspect(tmp_path).exit_code == 2
    assert "is a directory" in inspect(tmp_path).stderr
    assert "there is no file" in inspect(tmp_path / "none").stderr


def test_a_directory_is_not_taken_for_a_log(tmp_path: Path) -> None:
    told = inspect(tmp_path)

    assert told.exit_code == 2
    assert "is a directory, not a file" in told.stderr
    assert ".wal" not in told.stderr
