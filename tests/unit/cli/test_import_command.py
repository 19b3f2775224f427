"""`neve import`: rows out of CSV, JSON lines, Parquet and Arrow files."""

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import neve
from neve.catalog.table import Table
from neve.cli.imported_rows import ImportForm, open_rows
from neve.cli.json_rows import JsonRows
from neve.engine.row_input import Rows
from neve.model.arrow_types import ArrowField
from neve.model.schema import TableSchema
from tests.unit.cli.rows_lake import ORDERS, RowsLake
from tests.unit.sstable.data_files import ALL_TYPES, arrow_schema, rows_of_all_types

FOREIGN = pa.table(
    {
        "amount": pa.array([None, "1.50", "2"]).cast(pa.decimal128(5, 2)),
        "id": pa.array([1, 2, 3], pa.uint8()),
        "customer": pa.array(["ada", None, "ada"]).dictionary_encode(),
    }
)
CSV = "amount,id,customer\n,1,ada\n1.50,2,\n2,3,ada\n"
LINES = "".join(json.dumps(row, default=str) + "\n" for row in FOREIGN.to_pylist())
WANTED = [
    {"id": 1, "customer": "ada", "amount": None},
    {"id": 2, "customer": None, "amount": "1.50"},
    {"id": 3, "customer": "ada", "amount": "2.00"},
]


@pytest.fixture
def lake() -> RowsLake:
    """Return a table without rows."""
    return RowsLake().orders()


def write_ipc(path: Path, *, as_stream: bool) -> None:
    new = pa.ipc.new_stream if as_stream else pa.ipc.new_file
    with new(str(path), FOREIGN.schema) as writer:
        writer.write_table(FOREIGN, max_chunksize=2)


def write(path: Path) -> Path:
    match path.suffixes[0]:
        case ".csv":
            path.write_text(CSV)
        case ".tsv":
            path.write_text(CSV.replace(",", "\t"))
        case ".parquet" | ".pq":
            pq.write_table(FOREIGN, path)
        case ".arrow" | ".feather":
            write_ipc(path, as_stream=False)
        case ".arrows":
            write_ipc(path, as_stream=True)
        case _:
            path.write_text(LINES)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "x.csv", "x.CSV", "x.tsv", "x.jsonl", "x.ndjson", "x.json", "x.parquet", "x.pq", "x.arrow",
        "x.feather", "x.arrows", "x.csv.gz", "x.jsonl.gz",
    ],
)  # fmt: skip
def test_a_file_is_what_its_name_says(lake: RowsLake, tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name.lower()).rename(tmp_path / name)

    said = lake.ok("import", "shop.orders", str(path))

    assert said == "imported 3 rows into shop.orders, now at version 2\n"
    assert lake.rows() == WANTED


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
def test_the_form_can_be_said(lake: RowsLake, tmp_path: Path, form: str) -> None:
    path = write(tmp_path / f"x.{form}").rename(tmp_path / "x.dat")

    imported = lake.json("import", "shop.orders", str(path), "--format", form)

    assert imported == {"table": "shop.orders", "rows": 3, "sequence": 3, "version": 2}
    assert lake.rows() == WANTED


@pytest.mark.parametrize(("form", "text"), [("csv", CSV), ("jsonl", LINES)], ids=["csv", "jsonl"])
def test_standard_input_is_a_file_too(lake: RowsLake, form: str, text: str) -> None:
    lake.ok("import", "shop.orders", "-", "--format", form, stdin=text)

    assert lake.rows() == WANTED


def test_another_delimiter_can_be_said(lake: RowsLake, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(CSV.replace(",", ";"))

    lake.ok("import", "shop.orders", str(tmp_path / "x.csv"), "--delimiter", ";")

    assert lake.rows() == WANTED


def test_row_lineage_of_a_data_file_is_not_imported(lake: RowsLake, tmp_path: Path) -> None:
    rows = pq.read_table(write(tmp_path / "x.parquet"))
    ids = pa.array(range(rows.num_rows), pa.int64())
    for name in ("_row_id", "_last_updated_sequence_number"):
        rows = rows.append_column(name, ids)
    pq.write_table(rows, tmp_path / "x.parquet")

    lake.ok("import", "shop.orders", str(tmp_path / "x.parquet"))

    assert lake.rows() == WANTED


def test_an_import_can_be_repeated(lake: RowsLake, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet")

    for _ in range(2):
        lake.ok("import", "shop.orders", str(path), "--batch-rows", "2")

    assert lake.rows() == WANTED


@pytest.mark.parametrize("form", ["csv", "json", "jsonl", "parquet"])
def test_rows_of_every_type_go_round_through_files(tmp_path: Path, form: str) -> None:
    _, rows = rows_of_all_types(40)
    lake = RowsLake()
    for name in ("a.one", "a.two"):
        lake.create(name, ALL_TYPES, ["id"])
    with neve.open(lake.location).table("a.one") as table:
        table.upsert(rows)
    path = str(tmp_path / f"rows.{form}")

    lake.ok("scan", "a.one", path)
    lake.ok("import", "a.two", path)

    assert lake.ok("scan", "a.two", "--output", "jsonl") == lake.ok(
        "scan", "a.one", "--output", "jsonl"
    )


def test_cells_of_csv_take_more_forms_than_columns_of_them(lake: RowsLake) -> None:
    text = 'id,customer,amount\n7.0,"two\nlines, and ""more""",1e2\n'

    lake.ok("import", "shop.orders", "-", "--format", "csv", stdin=text)

    assert lake.rows() == [{"id": 7, "customer": 'two\nlines, and "more"', "amount": "100.00"}]


# Wrong input


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("csv", "", "cannot be read as CSV: Empty CSV file"),
        ("csv", "id,custmer\n1,x\n", "column 'custmer' of standard input is not in the table"),
        ("csv", "id,id\n1,1\n", "column 'id' is in standard input twice"),
        ("csv", "id,customer\n1\n", "standard input:2: Expected 2 columns, got 1"),
        ("csv", "id\n1\nx\n", "standard input:3: column 'id': expected a number"),
        ("csv", "id,amount\n1,1.239\n", "standard input:2: column 'amount'"),
        ("csv", "id,amount\n1,1\n,2\n", "standard input:3: column 'id': NULL"),
        ("csv", "customer\nx\n", "column 'id' is missing"),
        ("csv", "id\n1\n\n", None),
        ("jsonl", '{"id": 1}\n{"id": 1.5}\n', "standard input:2: column 'id'"),
        ("jsonl", "[1]\n", "standard input, row 1: not a JSON object"),
        ("arrow", "text", "standard input cannot be read"),
        ("parquet", "text", "standard input cannot be read"),
    ],
    ids=range(13),
)
def test_wrong_rows_are_named(lake: RowsLake, form: str, text: str, said: str | None) -> None:
    done = lake.run("import", "shop.orders", "-", "--format", form, stdin=text)

    if said is None:
        assert done.exit_code == 0, done.stderr
        return
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert lake.rows() == []


def test_a_wrong_row_far_behind_keeps_a_file_from_being_written(
    lake: RowsLake, tmp_path: Path
) -> None:
    rows = pa.table({"id": [1, 2, 3, None], "customer": ["a", "b", "c", "d"]})
    pq.write_table(rows, tmp_path / "x.parquet")

    refused = lake.run("import", "shop.orders", str(tmp_path / "x.parquet"), "--batch-rows", "2")

    assert refused.exit_code == 2
    assert f"{tmp_path / 'x.parquet'}, row 4: column 'id': NULL" in refused.stderr
    assert "Nothing was written; --keep-good" in refused.stderr
    assert lake.rows() == []


def test_of_standard_input_the_rows_before_a_wrong_batch_are_told(lake: RowsLake) -> None:
    lines = '{"id": 1}\n{"id": 2}\n{"id": 3}\n{"id": "x"}\n'

    refused = lake.run(
        "import", "shop.orders", "-", "--format", "jsonl", "--batch-rows", "2", stdin=lines
    )

    assert refused.exit_code == 2
    assert refused.stderr.startswith("neve: standard input:4: column 'id'")
    assert "2 rows before it are written" in refused.stderr
    assert [row["id"] for row in lake.rows()] == [1, 2]


# Several wrong rows


WRONG_CSV = (
    'id,customer,amount\n1,ada,1.50\nx,bob,2\n3,"two\nlines",3\n4,dan\n\n5,eve,5.999\n6,,6\n'
    '7,"a, b",y\n'
)
WRONG_CSV_LINES = (3, 6, 8, 10)
WRONG_JSONL = (
    '{"id": 1}\n{"id": "x"}\n\n{"id": 3, "amount": "1.50"}\nno json\n[]\n{"id": 6, "nope": 1}\n'
    '{"id": 6}\n'
)
WRONG_JSONL_LINES = (2, 5, 6, 7)


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("x.csv", WRONG_CSV, WRONG_CSV_LINES),
        ("x.jsonl", WRONG_JSONL, WRONG_JSONL_LINES),
        ("x.csv.gz", WRONG_CSV, WRONG_CSV_LINES),
    ],
)
def test_all_wrong_rows_are_told_with_their_lines_and_nothing_is_written(
    lake: RowsLake, tmp_path: Path, name: str, text: str, lines: tuple[int, ...]
) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())

    refused = lake.run("import", "shop.orders", str(path), "--batch-rows", "2")
    as_json = lake.run("import", "shop.orders", str(path), "--json")

    first, *details, hint = refused.stderr.splitlines()
    assert refused.exit_code == as_json.exit_code == 2
    assert first == f"neve: {len(lines)} rows of {path} do not fit; nothing was written"
    assert [line.partition(": ")[0] for line in details] == [f"      {path}:{n}" for n in lines]
    assert "--keep-good" in hint
    error = json.loads(as_json.stderr)["error"]
    assert [line.strip() for line in details] == error["details"]
    assert lake.rows() == []


def test_the_rows_that_fit_are_kept_on_request(lake: RowsLake, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(WRONG_CSV)

    said = lake.ok("import", "shop.orders", str(path), "--keep-good", "--batch-rows", "1")
    again = lake.json("import", "shop.orders", str(path), "--keep-good")

    first, second, *details = said.splitlines()
    assert first == "imported 3 rows into shop.orders, now at version 2"
    assert second == "4 rows did not fit:"
    assert [line.strip() for line in details] == again["details"]
    assert [int(line.partition(": ")[0].rpartition(":")[2]) for line in details] == [
        *WRONG_CSV_LINES
    ]
    assert (again["rows"], again["refused"]) == (3, 4)
    assert [row["id"] for row in lake.rows()] == [1, 3, 6]


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("x.csv", WRONG_CSV, 'id,customer,amount\nx,bob,2\n4,dan\n5,eve,5.999\n7,"a, b",y\n'),
        ("x.jsonl", WRONG_JSONL, '{"id": "x"}\nno json\n[]\n{"id": 6, "nope": 1}\n'),
        ("x.tsv", 'id\tcustomer\n\t"a\tb"\n2\t""\n', 'id\tcustomer\n\t"a\tb"\n'),
    ],
    ids=["csv", "jsonl", "tsv"],
)
def test_rows_that_do_not_fit_are_kept_in_a_file_to_be_corrected(
    lake: RowsLake, tmp_path: Path, name: str, text: str, kept: str
) -> None:
    path, refused = tmp_path / name, tmp_path / f"refused{Path(name).suffix}"
    path.write_text(text)

    said = lake.ok("import", "shop.orders", str(path), "--refused", str(refused))

    assert f"kept in {refused}:" in said
    assert sorted(refused.read_text().splitlines()) == sorted(kept.splitlines())
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([path.name, refused.name])


def test_without_a_row_that_does_not_fit_no_file_of_them_is_made(
    lake: RowsLake, tmp_path: Path
) -> None:
    path = str(write(tmp_path / "x.csv"))

    said = lake.ok("import", "shop.orders", path, "--refused", str(tmp_path / "refused.csv"))

    assert said == "imported 3 rows into shop.orders, now at version 2\n"
    assert [each.name for each in tmp_path.iterdir()] == ["x.csv"]


def test_rows_that_only_the_table_refuses_are_passed_over_too(
    lake: RowsLake, tmp_path: Path
) -> None:
    rows = pa.table({"id": [None, 1, None, 2, None], "customer": [*"abcde"]})
    pq.write_table(rows, tmp_path / "x.parquet")

    done = lake.json("import", "shop.orders", str(tmp_path / "x.parquet"), "--keep-good")

    assert (done["rows"], done["refused"]) == (2, 3)
    assert [line.partition(": ")[0].rpartition(", ")[2] for line in done["details"]] == [
        "row 1",
        "row 3",
        "row 5",
    ]
    assert [(row["id"], row["customer"]) for row in lake.rows()] == [(1, "b"), (2, "d")]


def test_wrong_lines_are_told_in_their_order_whoever_refuses_them(tmp_path: Path) -> None:
    lake = RowsLake()
    lake.create("a.numbers", arrow_schema(number=pa.float64()), ["number"])
    path = tmp_path / "x.jsonl"
    path.write_text('{"number": "NaN"}\nno json\n{"number": 1}\n{"number": "NaN"}\n[]\n')

    refused = lake.run("import", "a.numbers", str(path))

    _, *details, _ = refused.stderr.splitlines()
    assert [line.partition(": ")[0].rpartition(":")[2] for line in details] == ["1", "2", "4", "5"]


def test_of_very_many_wrong_rows_the_first_are_told(lake: RowsLake, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id\n" + "x\n" * 5_000)

    refused = lake.run("import", "shop.orders", str(path))
    kept = lake.json("import", "shop.orders", str(path), "--keep-good")

    first, *details, _hint = refused.stderr.splitlines()
    assert first.startswith("neve: 1,000 rows or more of ")
    assert len(details) == 21
    assert details[-1].strip() == "and 980 more rows"
    assert (kept["rows"], kept["refused"], kept["version"]) == (0, 5_000, 1)


def test_what_has_no_lines_keeps_none_in_a_file(lake: RowsLake, tmp_path: Path) -> None:
    path = str(write(tmp_path / "x.parquet"))

    refused = lake.run("import", "shop.orders", path, "--refused", "refused.parquet")

    assert refused.exit_code == 2
    assert "--refused cannot keep rows of parquet" in refused.stderr
    assert lake.rows() == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("x,9,eve", "column 'amount'"),
        ("1,,eve", "column 'id': NULL"),
        ("1,9", "Expected 3 columns, got 2"),
        ("1.239,9,eve", "column 'amount'"),
    ],
    ids=["text", "null", "short", "digits"],
)
@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_a_wrong_row_of_csv_is_named_by_its_line(
    lake: RowsLake, tmp_path: Path, name: str, wrong: str, said: str
) -> None:
    text = f'\ufeff\namount,id,customer\n\n1,1,"two\n\nlines"\r\n2,2,5" pipe\n\n{wrong}\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())

    refused = lake.run("import", "shop.orders", str(path))

    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"neve: {path}:9: {said}")


@pytest.mark.parametrize("cut", [slice(None, -12), slice(None, 4)], ids=["torn", "header only"])
def test_a_damaged_compressed_file_is_the_callers_to_mend(
    lake: RowsLake, tmp_path: Path, cut: slice
) -> None:
    path = tmp_path / "x.csv.gz"
    whole = bytearray(gzip.compress(b"id,customer,amount\n" + b"1,ada,9\n" * 500))
    whole[len(whole) // 2] ^= 0xFF
    path.write_bytes(whole[cut])

    refused = lake.run("import", "shop.orders", str(path))

    assert refused.exit_code == 2, refused.stderr
    assert str(path) in refused.stderr


def test_a_wrong_line_of_json_is_named_wherever_it_is_noticed(tmp_path: Path) -> None:
    lake = RowsLake()
    lake.create("a.numbers", arrow_schema(number=pa.float64()), ["number"])
    path = tmp_path / "x.jsonl"
    path.write_text('{"number": 1}\n\n{"number": 2}\n{"number": 3}\n\n{"number": "NaN"}\n')

    refused = lake.run("import", "a.numbers", str(path), "--batch-rows", "2")

    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"neve: {path}:6: key column 'number'")


@pytest.mark.parametrize(
    ("mark", "said"), [(";", "--delimiter ';'"), ("\t", "--delimiter $'\\t'"), ("|", "'|'")]
)
def test_another_delimiter_is_suggested(
    lake: RowsLake, tmp_path: Path, mark: str, said: str
) -> None:
    (tmp_path / "x.csv").write_text(CSV.replace(",", mark))

    refused = lake.run("import", "shop.orders", str(tmp_path / "x.csv"))

    assert refused.exit_code == 2
    assert said in refused.stderr.splitlines()[1]


# Some columns


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet", "x.arrow"])
def test_other_columns_stay_as_they_are(lake: RowsLake, tmp_path: Path, name: str) -> None:
    path = str(write(tmp_path / name))
    lake.ok("put", "shop.orders", '{"id": 2, "customer": "bob", "amount": 7}')

    lake.ok("import", "shop.orders", path, "--columns", "amount")

    assert lake.rows() == [
        {"id": 1, "customer": None, "amount": None},
        {"id": 2, "customer": "bob", "amount": "1.50"},
        {"id": 3, "customer": None, "amount": "2.00"},
    ]


@pytest.mark.parametrize(
    ("form", "text"),
    [("csv", "id,customer\n1,ada\n"), ("jsonl", '{"id": 1, "customer": "ada"}\n')],
    ids=["csv", "jsonl"],
)
def test_a_column_to_write_that_is_not_in_the_file_is_refused(
    lake: RowsLake, form: str, text: str
) -> None:
    refused = lake.run(
        "import", "shop.orders", "-", "--format", form, "--columns", "amount", stdin=text
    )

    assert refused.exit_code == 2
    assert "column 'amount' is missing" in refused.stderr
    assert lake.rows() == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(",1", "column 'id': NULL"), ("7,", "column 'amount': NULL")],
    ids=["key", "column"],
)
@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_nothing_is_written_when_a_row_of_some_columns_does_not_fit(
    tmp_path: Path, name: str, wrong: str, said: str
) -> None:
    lake = RowsLake()
    required: list[ArrowField] = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.int64(), nullable=False),
        pa.field("note", pa.string()),
    ]
    lake.create("a.b", pa.schema(required), ["id"])
    text = "id,amount\n1,1\n2,1\n3,1\n4,1\n5,1\n6,1\n" + wrong + "\n8,1\n"
    path = tmp_path / name
    if path.suffix == ".csv":
        path.write_text(text)
    else:
        pq.write_table(csv.read_csv(io.BytesIO(text.encode())), path)

    arguments = ("import", "a.b", str(path), "--columns", "amount", "--batch-rows", "2")
    refused = lake.run(*arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert str(path) in refused.stderr
    assert lake.rows("a.b") == []
    kept = lake.json(*arguments, "--keep-good")
    assert (kept["rows"], kept["refused"]) == (7, 1)


def test_nothing_is_written_when_a_row_to_be_has_no_value_for_a_required_column(
    tmp_path: Path,
) -> None:
    lake = RowsLake()
    required: list[ArrowField] = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.int64()),
        pa.field("owner", pa.string(), nullable=False),
    ]
    lake.create("a.b", pa.schema(required), ["id"])
    for number in range(4):
        lake.ok("put", "a.b", json.dumps({"id": number, "amount": 0, "owner": "ada"}))
    path = tmp_path / "x.csv"
    path.write_text("id,amount\n" + "".join(f"{number},9\n" for number in range(5)))

    refused = lake.run("import", "a.b", str(path), "--columns", "amount", "--batch-rows", "2")

    assert refused.exit_code == 2
    assert "key 4 has no row yet" in refused.stderr
    assert [row["amount"] for row in lake.rows("a.b")] == [0] * 4


# Interrupted


def test_an_import_that_is_stopped_says_how_far_it_came(
    lake: RowsLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write(tmp_path / "x.jsonl"))
    upsert = Table.upsert

    def stopped(table: Table, rows: Rows, columns: Sequence[str] | None = None) -> int:
        if table.stats().memtable_rows:
            raise KeyboardInterrupt
        return upsert(table, rows, columns)

    monkeypatch.setattr(Table, "upsert", stopped)
    done = lake.run("import", "shop.orders", path, "--batch-rows", "2")

    assert done.exit_code == 130
    assert "interrupted; 2 rows or more of the file are in the table shop.orders" in done.stderr
    assert "Import the file again" in done.stderr
    assert len(lake.rows()) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.csv"], "there is no file none.csv"),
        (["x.doc"], "does not show the format of the file"),
        (["x.zip"], "x.zip is an archive"),
        (["-"], "the format of standard input is unknown"),
        ([".", "--format", "csv"], ". is a directory"),
        (["x.jsonl", "--delimiter", ";"], "--delimiter does not apply to jsonl"),
        (["x.csv", "--delimiter", ";;"], "is not one ASCII character"),
        (["x.csv", "--batch-rows", "0"], "0 is not in the range"),
    ],
    ids=range(8),
)
def test_a_wrong_call_is_refused(lake: RowsLake, arguments: list[str], said: str) -> None:
    refused = lake.run("import", "shop.orders", *arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr


def test_a_table_is_never_made(lake: RowsLake, tmp_path: Path) -> None:
    refused = lake.run("import", "shop.none", str(write(tmp_path / "x.csv")))

    assert refused.exit_code == 2
    assert "shop.none" in refused.stderr
    assert [each["name"] for each in lake.json("tables")["tables"]] == ["shop.orders"]


# Memory and progress


class CountedLines(io.RawIOBase):
    """An endless file of rows that counts how many were taken."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        del size
        self.taken += 1
        return b'{"id": %d}\n' % self.taken


def test_no_more_lines_are_read_than_a_batch_needs() -> None:
    lines = CountedLines()
    rows = JsonRows(TableSchema.from_arrow(ORDERS, primary_key=["id"]), source="lines")

    batches: Iterator[pa.RecordBatch] = rows.batches(cast("BinaryIO", lines), batch_rows=10)

    assert next(batches).num_rows == 10
    assert lines.taken == 10
    assert next(batches).column("id").to_pylist() == [*range(11, 21)]


def test_batches_of_a_file_are_no_larger_than_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "x.arrow")
    schema = TableSchema.from_arrow(ORDERS, primary_key=["id"])

    with open_rows(str(path), ImportForm.ARROW, schema, batch_rows=1, delimiter=None) as opened:
        assert [batch.num_rows for batch in opened.batches] == [1, 1, 1]
        assert opened.byte_count == path.stat().st_size


def test_a_terminal_sees_how_far_an_import_is(
    lake: RowsLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    path = str(write(tmp_path / "x.csv"))

    shown = lake.run("import", "shop.orders", path)
    monkeypatch.delenv("FORCE_COLOR")
    silent = lake.run("import", "shop.orders", path)

    assert "importing" in shown.stderr
    assert silent.stderr == ""


@pytest.mark.parametrize("options", [(), ("--keep-good",)])
@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("id,customer\n1,é\n".encode("utf-16"), 1),
        (b"id,customer\n1,a\n2,\xff\xfe,extra\n", 3),  # as a row it is too long as well
        (b"id,customer\n1,a\n2,\xc3", 3),  # a letter that is cut
    ],
)
def test_csv_in_another_encoding_is_a_wrong_call(
    lake: RowsLake,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    *,
    content: bytes,
    line: int,
    options: tuple[str, ...],
) -> None:
    (tmp_path / "x.csv").write_bytes(content)

    refused = lake.run("import", "shop.orders", str(tmp_path / "x.csv"), *options)

    assert refused.exit_code == 2
    assert f"x.csv:{line} is not UTF-8" in refused.stderr
    assert capfd.readouterr().err == "", "nothing that Arrow could not report"
