"""`neve inspect wal`: what is drawn, what JSON holds, and how it ends for every kind of file."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neve.cli.main import cli
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from neve.model.write_batch import AppliedBatch, DeleteRows, UpsertRows
from neve.wal.log_options import LogOptions
from neve.wal.record_format import BLOCK_BYTES
from tests.unit.wal.inspected_logs import (
    batch,
    delete,
    flipped,
    neve_log,
    put,
    segment,
)


def run(path: Path, *args: str) -> Result:
    return CliRunner().invoke(cli, ["inspect", "wal", str(path), *args])


def shown(path: Path, *args: str) -> str:
    result = run(path, *args)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def document(path: Path, *args: str) -> Mapping[str, Any]:
    parsed: Mapping[str, Any] = json.loads(shown(path, "--json", *args))
    return parsed


def written(directory: Path, content: bytes, name: str = "000001.wal") -> Path:
    path = directory / name
    path.write_bytes(content)
    return path


# Files that are no logs


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    result = run(tmp_path / "000009.wal")

    assert result.exit_code == 2
    assert result.stderr.startswith(f"neve: there is no file {tmp_path / '000009.wal'}\n")


def test_a_directory_is_told(tmp_path: Path) -> None:
    result = run(tmp_path)

    assert result.exit_code == 2
    assert "is a directory, not a file" in result.stderr


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    result = run(written(tmp_path, b""))

    assert result.exit_code == 2
    assert "is empty" in result.stderr


def test_a_file_without_a_name_is_told() -> None:
    result = CliRunner().invoke(cli, ["inspect", "wal", ""])

    assert result.exit_code == 2
    assert result.stderr.startswith("neve: the name of a file is empty\n")


def test_standard_input_that_is_empty_is_told() -> None:
    result = CliRunner().invoke(cli, ["inspect", "wal", "-"], input=b"")

    assert result.exit_code == 2
    assert result.stderr.startswith("neve: standard input is empty\n")


def test_a_pipe_is_told_without_waiting_for_its_other_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    result = run(pipe)

    assert result.exit_code == 2
    assert "is not a plain file" in result.stderr
    assert "for a pipe, use -" in result.stderr


@contextmanager
def as_nobody() -> Iterator[None]:
    """Give up the right of root to read everything, where a test runs as root."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if me == 0:
            os.seteuid(0)


def test_a_file_that_this_user_may_not_read_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, neve_log([put(b"a")]))
    path.chmod(0)

    with as_nobody():
        result = run(path)

    assert result.exit_code == 3
    assert f"this user may not read {path}" in result.stderr


@pytest.mark.parametrize(
    ("content", "likeness"),
    [
        (b"# Title\n\nwords and more words\n" * 20, "a text"),
        (b"PAR1" + bytes(range(200)), "a Parquet file"),
        (b"\x7fELF\x02\x01\x01" + bytes(200), "a program"),
        (b"\x1f\x8b\x08" + bytes(range(100, 200)), "a gzip file"),
    ],
    ids=["text", "parquet", "program", "gzip"],
)
def test_what_is_no_log_is_told_kindly(tmp_path: Path, content: bytes, likeness: str) -> None:
    result = run(written(tmp_path, content, "notes.log"))

    assert result.exit_code == 2
    assert "is not a log" in result.stderr
    assert f"it looks like {likeness}" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("content", "payload", "said"),
    [
        pytest.param(
            neve_log([put(b"a")]), "edit", "a log of write batches, not of version edits", id="edit"
        ),
        pytest.param(
            segment(b"\x01\x05x.Cmp\x02\x05"),
            "batch",
            "a log of version edits, not of write batches",
            id="batch",
        ),
    ],
)
def test_a_log_that_holds_something_else_than_is_said_is_not_called_damaged(
    tmp_path: Path, content: bytes, payload: str, said: str
) -> None:
    result = run(written(tmp_path, content), "--payload", payload)

    assert result.exit_code == 2
    assert said in result.stderr
    assert "or leave out --payload" in result.stderr
    assert result.stdout == ""


def test_a_start_behind_the_end_is_told(tmp_path: Path) -> None:
    result = run(written(tmp_path, neve_log([put(b"a")])), "--from", "1000000")

    assert result.exit_code == 2
    assert "is after the end" in result.stderr


# Damaged logs


def test_a_damaged_log_is_shown_and_is_no_failure(tmp_path: Path) -> None:
    rows = [[put(b"key %d" % number, b"v" * 2_000)] for number in range(40)]
    path = written(tmp_path, flipped(neve_log(*rows), 5_000))

    drawing = shown(path)

    assert "checksum mismatch" in drawing
    assert "✗ reading ends at byte" in drawing
    assert "were durable" in drawing
    assert "damaged places" in drawing


def test_a_damaged_log_is_exit_code_five_when_strict(tmp_path: Path) -> None:
    path = written(tmp_path, flipped(neve_log([put(b"a")], [put(b"b")]), 92))

    result = run(path, "--strict")

    assert result.exit_code == 5
    assert "reading ends at byte" in result.stdout
    assert result.stderr == f"neve: the log is damaged in {path} at byte 84\n"


def test_a_torn_tail_fails_only_the_strict(tmp_path: Path) -> None:
    path = written(tmp_path, neve_log([put(b"a")], closed=False)[:-1])

    assert "torn tail" in shown(path)
    assert run(path, "--strict").exit_code == 5


def test_a_whole_log_passes_the_strict(tmp_path: Path) -> None:
    assert run(written(tmp_path, neve_log([put(b"a")])), "--strict").exit_code == 0


def test_damage_behind_the_limit_is_still_told(tmp_path: Path) -> None:
    rows = [[put(b"key %d" % number, b"v" * 2_000)] for number in range(40)]
    path = written(tmp_path, flipped(neve_log(*rows), 40_000))

    drawing = shown(path, "--limit", "2")

    assert "✗ checksum mismatch at byte" in drawing
    assert document(path, "--limit", "2")["damage"][0]["reason"] == "checksum mismatch"


def test_a_log_whose_first_bytes_are_damaged_is_known_by_its_name(tmp_path: Path) -> None:
    content = bytearray(segment(batch(1, put(b"a"))))
    content[6] = 0x41  # no type that could be

    assert run(written(tmp_path, bytes(content), "backup")).exit_code == 2
    assert "damaged" in shown(written(tmp_path, bytes(content), "000007.log"))


# Whole logs


def test_the_drawing_shows_blocks_records_rows_and_the_end(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "name": ["Ada", "Bob"]})
    log = neve_log([put(b"k", b"v")], [delete(b"\xff")], [UpsertRows(rows)])

    lines = shown(written(tmp_path, log)).splitlines()

    assert lines[0].startswith(f"000001.wal  {len(log):,} bytes")
    assert lines[1] == (
        "crc32c checksums, as neve writes · log 1 · recyclable headers (with log number) · "
        "write batches"
    )
    assert lines[3].startswith("╭─ block 0 ─ bytes 0 to ")
    text = "\n".join(lines)
    assert "log 1 begins at row 1" in text
    assert 'row 1  put "k" = "v"' in text
    assert "row 2  delete 0xff" in text
    assert "rows 3 to 4  upsert rows: 2 rows" in text
    assert "columns id, name" in text
    assert '1  "Ada"' in text
    assert "log ends, closed in good order" in text
    assert lines[-2].startswith("✔ reading ends at byte")
    assert lines[-1] == "  5 records · 4 rows · nothing damaged"


def test_a_long_record_is_told_at_its_last_fragment(tmp_path: Path) -> None:
    log = neve_log([put(b"long", b"x" * 5 * BLOCK_BYTES)])

    drawing = shown(written(tmp_path, log))

    assert "first   32" in drawing
    assert "blocks 1 to 4: each a middle fragment of one record" in drawing
    assert '╯ row 1  put "long" = "xxx' in drawing


def test_reserved_space_is_one_line(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=64 * BLOCK_BYTES, recycle_count=1)
    log = neve_log([put(b"a")], closed=False, options=options)

    drawing = shown(written(tmp_path, log))

    assert "63 blocks of zeros, 2,064,384 bytes: reserved, never written" in drawing
    assert drawing.count("╭─ block") == 1


def test_the_limit_counts_records_and_the_rest_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path, neve_log(*[[put(b"k%d" % number)] for number in range(50)]))

    drawing = shown(path, "--limit", "3")

    assert drawing.count(" put ") == 2
    assert "… 49 more records" in drawing
    parsed = document(path, "--limit", "3")
    assert len(parsed["records"]) == 3
    assert parsed["omitted_records"] == 49
    assert parsed["totals"]["records"] == 52


def test_rows_of_neve_are_shown_by_field(tmp_path: Path) -> None:
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "price": pa.decimal128(9, 2)}
    schema = TableSchema.from_arrow(pa.schema(columns), primary_key=["id"])
    value = RowCodec(schema).encode({"id": 7, "price": Decimal("1.25")})
    path = written(tmp_path, neve_log([put(b"k", value)]))

    assert "#1=7 #2=1.25" in shown(path)
    entry = document(path)["records"][1]["batch"]["entries"][0]
    assert entry["row"] == [
        {"field_id": 1, "type": "long", "value": 7},
        {"field_id": 2, "type": "decimal(9,2)", "value": "1.25"},
    ]


def test_the_number_of_an_applications_batch_is_shown_and_is_not_a_row(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2]})
    number = AppliedBatch("or\x1bders", 1_234_567)
    path = written(tmp_path, neve_log([UpsertRows(rows), DeleteRows(rows.slice(0, 1)), number]))

    for drawing in (shown(path), shown(path, "--hex")):
        assert "sequence 4  applied batch 1,234,567 of or\\x1bders\n" in drawing
        assert "3 records · 3 rows · nothing damaged" in drawing
    parsed = document(path)
    assert parsed["records"][1]["batch"]["entries"][2] == {
        "op": "applied batch",
        "tag": 0x13,
        "sequence": 4,
        "application": "or\x1bders",
        "batch": 1_234_567,
    }
    assert parsed["totals"]["rows"] == 3
    assert parsed["records"][1]["batch"]["next_sequence"] == 5


def test_json_says_whether_keys_and_values_are_text_or_hex(tmp_path: Path) -> None:
    path = written(tmp_path, neve_log([put(b"a", b"\x00\xff")]))

    entry = document(path)["records"][1]["batch"]["entries"][0]

    assert entry["key"] == {"text": "a"}
    assert entry["value"] == {"hex": "00ff"}
    hexed = document(path, "--hex")["records"][1]["batch"]["entries"][0]
    assert hexed["key"] == {"hex": "61"}


def test_hex_adds_a_dump_to_the_drawing(tmp_path: Path) -> None:
    drawing = shown(written(tmp_path, neve_log([put(b"key", b"value" * 100)])), "--hex")

    assert "00000000  01 00 00 00 00 00 00 00" in drawing
    assert "more bytes" in drawing
    assert "put 0x6b6579" in drawing


def test_json_has_stable_keys(tmp_path: Path) -> None:
    parsed = document(written(tmp_path, neve_log([put(b"a")], closed=False)))

    assert list(parsed) == [
        "file",
        "bytes",
        "dialect",
        "header",
        "log_number",
        "payload",
        "from",
        "blocks",
        "records",
        "damage",
        "omitted_records",
        "end",
        "totals",
    ]
    assert parsed["file"] == "000001.wal"
    assert parsed["dialect"] == "crc32c"
    assert parsed["header"] == "recyclable"
    assert parsed["log_number"] == 1
    block = parsed["blocks"][0]
    assert list(block) == ["block", "offset", "bytes", "fill", "parts"]
    assert block["parts"][0] == {
        "kind": "record",
        "offset": 0,
        "bytes": 84,
        "type": "full",
        "length": 73,
        "checksum": "ok",
    }
    record = parsed["records"][1]
    assert list(record) == ["offset", "bytes", "fragments", "behind_end", "batch"]
    assert list(record["batch"]) == [
        "sequence",
        "next_sequence",
        "count",
        "schema_version",
        "durable_through",
        "nonce",
        "log_start",
        "log_end",
        "entries",
    ]
    assert parsed["end"]["reason"] == "end of file"
    assert parsed["totals"] == {
        "records": 2,
        "records_behind_end": 0,
        "rows": 1,
        "rows_behind_end": 0,
        "damaged": 0,
        "dropped_bytes": 0,
    }


def test_a_limit_in_json_leaves_out_parts_as_it_leaves_out_records(tmp_path: Path) -> None:
    rows = [[put(b"key %d" % number, b"v" * 9_000)] for number in range(20)]
    path = written(tmp_path, neve_log(*rows))

    parsed = document(path, "--limit", "5")

    last = parsed["records"][-1]
    parts = [part for block in parsed["blocks"] for part in block["parts"]]
    assert len(parsed["records"]) == 5
    assert parts[-1]["offset"] == last["fragments"][-1]["offset"]
    whole = document(path)
    assert [part for block in whole["blocks"] for part in block["parts"]][: len(parts)] == parts
    assert parsed["blocks"][-1]["fill"] == whole["blocks"][len(parsed["blocks"]) - 1]["fill"]
    assert document(path, "--limit", "0")["blocks"] == []
    assert document(path, "--limit", "99")["blocks"] == whole["blocks"]


def test_reading_can_start_in_the_middle(tmp_path: Path) -> None:
    path = written(tmp_path, neve_log(*[[put(b"k%d" % number)] for number in range(9)]))
    fifth = document(path)["records"][5]["offset"]

    for spelled in (f"{fifth}", f"{fifth:,}", f"{fifth:#x}"):
        assert document(path, "--from", spelled)["records"][0]["offset"] == fifth


def test_payload_of_a_manifest_is_known_by_name_and_can_be_said(tmp_path: Path) -> None:
    log = segment(b"\x02\x05\x63")
    by_name = document(written(tmp_path, log, "MANIFEST-000004"))
    said = document(written(tmp_path, log, "copy"), "--payload", "edit")

    for parsed in (by_name, said):
        fields = parsed["records"][0]["edit"]["fields"]
        assert fields[0] == {"tag": 2, "field": "log number", "log": 5}
        assert fields[1] == {"tag": 99, "field": "unknown", "rest": {"text": ""}}


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_is_read_like_a_file(name: str) -> None:
    log = neve_log([put(b"a")])

    result = CliRunner().invoke(cli, ["inspect", "wal", name], input=log)

    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"standard input  {len(log):,} bytes\n")
    assert 'row 1  put "a"' in result.stdout


# Several files


def run_all(*args: str | Path) -> Result:
    arguments = ["inspect", "wal", *map(str, args)]
    return CliRunner().invoke(cli, arguments, env={"COLUMNS": "1000"})


def two_logs(directory: Path) -> tuple[Path, Path]:
    return (
        written(directory, neve_log([put(b"a")]), "first.wal"),
        written(directory, neve_log([put(b"b")]), "second.wal"),
    )


def test_what_cannot_be_shown_is_told_and_the_others_are_shown(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)
    text = written(tmp_path, b"words and more words\n" * 9, "notes.txt")

    result = run_all(tmp_path / "missing.wal", first, text, second)

    assert result.exit_code == 2
    absent, wrong = (line for line in result.stderr.splitlines() if line.startswith("neve: "))
    assert absent == f"neve: there is no file {tmp_path / 'missing.wal'}"
    assert wrong.startswith(f"neve: {text} is not a log")
    assert result.stdout.count("✔ reading ends") == 2


def test_the_exit_code_of_several_files_is_that_of_the_first_failure(tmp_path: Path) -> None:
    damaged = written(tmp_path, flipped(neve_log([put(b"a")], [put(b"b")]), 60), "damaged.wal")
    missing = tmp_path / "missing.wal"

    assert run_all("--strict", damaged, missing).exit_code == 5
    assert run_all("--strict", missing, damaged).exit_code == 2


def test_drawings_of_several_files_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)

    result = run_all(first, second)

    assert result.exit_code == 0
    above, _, below = result.stdout.partition(f"\n\n{second}  ")
    assert above.startswith(f"{first}  ")
    assert 'put "a"' in above
    assert 'put "b"' in below


def test_json_of_several_files_is_one_document_after_the_other(tmp_path: Path) -> None:
    first, second = two_logs(tmp_path)

    rest = run_all("--json", first, second).stdout
    documents = []
    while rest:
        parsed, end = json.JSONDecoder().raw_decode(rest)
        documents.append(parsed)
        rest = rest[end:].lstrip()

    assert [parsed["file"] for parsed in documents] == [str(first), str(second)]


def test_a_symbolic_link_leads_to_its_log(tmp_path: Path) -> None:
    written(tmp_path, neve_log([put(b"a")]))
    link = tmp_path / "latest"
    link.symlink_to("000001.wal")

    assert "log 1 begins" in shown(link)


def test_a_file_under_another_number_is_told_to_be_recycled_or_renamed(tmp_path: Path) -> None:
    path = written(tmp_path, neve_log([put(b"a")]), "000042.wal")

    assert "a record of log 1 follows: the file was recycled or renamed" in shown(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=st.binary(max_size=300), name=st.sampled_from(["MANIFEST-1", "000001.log"]))
def test_any_payload_is_drawn_and_dumped_without_a_control_character(
    tmp_path: Path, payload: bytes, name: str
) -> None:
    path = written(tmp_path, segment(payload), name)

    drawing = shown(path, "--hex")

    assert all(line.isprintable() for line in drawing.splitlines())
    assert document(path)["totals"]["records"] == 1
