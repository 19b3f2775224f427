"""What fails on the command line is told in words that can be typed there."""

import errno
import pickle
import re
from pathlib import Path
from string import Formatter

import pyarrow as pa
import pytest

import neve
from neve.cli.command_wording import command_words, failure_hint, failure_message
from neve.errors import Corruption, InvalidArgument, NeveError, Phrase, Wording
from neve.storage.disk import error_from_disk
from tests.unit.cli.rows_lake import RowsLake
from tests.unit.sstable.data_files import arrow_schema

PYTHON = re.compile(
    r"\blake\.|\btable\.|\bneve\.|\bpa\.|`table`|read_only|=True|\bPass\b|Decimal|datetime\(|"
    r"aware datetime|uuid\.UUID|\bstr\b|\bint\b in|list_tables|history\(\)|None\b|since=|until=|"
    r"is_null|is_nan|`columns`|\b[A-Z]\d: |128\(|\[us"
)
COLUMNS = arrow_schema(
    id=pa.int64(),
    amount=pa.decimal128(9, 2),
    count=pa.int32(),
    share=pa.float64(),
    day=pa.date32(),
    at=pa.time64("us"),
    ts=pa.timestamp("us"),
    tz=pa.timestamp("us", tz="UTC"),
    name=pa.string(),
    code=pa.binary(),
    flag=pa.bool_(),
    ref=pa.uuid(),
    address=pa.struct([pa.field("zip", pa.int32()), pa.field("street", pa.string())]),
)


@pytest.fixture
def lake() -> RowsLake:
    """Return a table with a column of each kind."""
    lake = RowsLake()
    lake.create("a.b", COLUMNS, ["id"])
    return lake


@pytest.mark.parametrize(
    "condition",
    [
        "amount > 'x'",
        "count = 'x'",
        "share = 'x'",
        "day = 'x'",
        "day = 5.5",
        "at = 'x'",
        "ts = 'x'",
        "tz = 'x'",
        "tz = '2024-01-01T00:00:00'",
        "ts = '2024-01-01T00:00:00+00:00'",
        "name = 5",
        "code = 5",
        "flag = 'x'",
        "flag = 7",
        "ref = 'x'",
        "ref = 5",
        "address = 5",
        "address.zip = 'x'",
        "address.zap = 5",
        "count starts with 'x'",
        "amount is nan",
        "count = 1 and",
        "nope = 1",
        "count = null",
    ],
)
def test_a_wrong_filter_is_told_without_pythons_words(lake: RowsLake, condition: str) -> None:
    refused = lake.run("scan", "a.b", "--filter", condition)

    assert refused.exit_code == 2, refused.stdout
    assert not PYTHON.search(refused.stderr), refused.stderr
    assert len(refused.stderr.splitlines()) == 2, refused.stderr


@pytest.mark.parametrize(
    "row",
    [
        '{"id": 1, "amount": "1.234"}',
        '{"id": 1, "amount": true}',
        '{"id": 1, "count": 3000000000}',
        '{"id": 1, "day": "x"}',
        '{"id": 1, "at": "x"}',
        '{"id": 1, "ts": "x"}',
        '{"id": 1, "tz": "2024-01-01T00:00:00"}',
        '{"id": 1, "ref": "x"}',
        '{"id": 1, "name": 5}',
        '{"id": 1, "nam": "x"}',
        '{"id": null}',
        "{}",
    ],
)
def test_a_wrong_row_is_told_without_pythons_words(lake: RowsLake, row: str) -> None:
    refused = lake.run("put", "a.b", row)

    assert refused.exit_code == 2
    assert not PYTHON.search(refused.stderr), refused.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["create", "a.b", "id:long", "--key", "id"], "--exists-ok accepts it"),
        (["rename", "a.b", "a.b"], "`neve describe a.b` shows it; drop it"),
        (["scan", "a.bb"], "Did you mean 'a.b'?"),
        (["scan", "other.thing"], "`neve tables` lists them"),
        (["tables", "nope"], "`neve tables` lists the tables of all"),
        (["get", "a.b", "1", "--timestamp", "2024-01-31"], "2024-01-31T12:00:00+00:00"),
        (["get", "a.b", "1", "--version", "9"], "Use a version from 1 to 1"),
        (["get", "a.b", "1", "--tag", "x"], "`neve history`"),
        (["rollback", "a.b", "1", "--tag", "x"], "--version, --timestamp and --tag"),
        (["changes", "a.b", "--since", "3", "--until", "2"], "Swap the two versions"),
        (["evolve", "a.b", "drop", "id"], "make a new table"),
        (["evolve", "a.b", "widen", "name:long"], "widens to long"),
        (["put", "a.b", "{}", "--columns", "nope"], "The table has"),
        (["put", "a.b", '{"id": 1}', "--expect", '{"id": 2}'], "or null for no row"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_to_do_next_can_be_typed(lake: RowsLake, arguments: list[str], hint: str) -> None:
    refused = lake.run(*arguments)

    assert refused.exit_code == 2, refused.stdout
    assert not PYTHON.search(refused.stderr), refused.stderr
    assert hint in refused.stderr


def test_a_damaged_publication_is_reported_with_a_command_that_writes_it_again(
    tmp_path: Path,
) -> None:
    lake = RowsLake(str(tmp_path))
    lake.create("a.b", COLUMNS, ["id"])
    lake.ok("put", "a.b", '{"id": 1}')
    lake.ok("flush", "a.b")
    max(tmp_path.glob("tables/*/metadata/snap-*.avro")).write_bytes(b"")

    damaged = lake.run("verify", "a.b")

    assert damaged.exit_code == 5
    assert not PYTHON.search(damaged.stderr + damaged.stdout), damaged.stderr
    assert "`neve iceberg`" in damaged.stderr
    assert "`neve iceberg`" in damaged.stdout


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_what_to_do_about_a_disk_that_takes_nothing_can_be_typed(code: int) -> None:
    refused = error_from_disk(OSError(code, "x"), doing="write", path="a.wal")

    hint = failure_hint(refused)

    assert hint is not None
    assert not PYTHON.search(hint)
    assert "collect_garbage" not in hint


def test_a_table_that_another_writer_holds_is_told_in_one_line(lake: RowsLake) -> None:
    with neve.open(lake.location).table("a.b"):
        refused = lake.run("put", "a.b", '{"id": 1}')

    assert refused.exit_code == 4
    assert not PYTHON.search(refused.stderr), refused.stderr
    assert len(refused.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InvalidArgument("CATALOG-26: column 'id' is in the key"), "column 'id' is in the key"),
        (InvalidArgument("x.csv:3: MODEL-4: no key"), "x.csv:3: no key"),
        (
            Corruption("SSTABLE-1: damaged footer", path="a.parquet"),
            "damaged footer (rule SSTABLE-1)",
        ),
        (
            Corruption("MANIFEST-V10: 2 keys have two rows", path="a.parquet"),
            "2 keys have two rows (rule MANIFEST-V10)",
        ),
        (InvalidArgument("column 'WAL-1' is odd"), "column 'WAL-1' is odd"),
    ],
)
def test_the_number_of_a_rule_is_never_the_first_word(error: NeveError, said: str) -> None:
    shown = failure_message(error)

    assert all(word in shown for word in said.split(" "))
    assert not re.match(r"[A-Z]+-[A-Z]?\d+:", shown)
    assert failure_hint(error) is None


@pytest.mark.parametrize("phrase", Phrase, ids=lambda phrase: phrase.name)
def test_every_phrase_of_the_library_has_words_that_can_be_typed(phrase: Phrase) -> None:
    gaps = {gap for _, gap, _, _ in Formatter().parse(phrase.value) if gap}
    said = Wording(phrase, **dict.fromkeys(gaps, "x"), type="long")

    words = command_words(said)

    assert not PYTHON.search(words)
    assert words != said
    assert "{" not in words


def test_wording_survives_the_way_to_another_process() -> None:
    said = Wording(Phrase.WRITE_AGAIN, rows="row")

    again = pickle.loads(pickle.dumps(said))  # noqa: S301 - made here

    assert again == said
    assert (again.phrase, again.facts) == (said.phrase, said.facts)


def test_every_phrase_is_said_by_the_library() -> None:
    root = Path(neve.__file__).parent
    said = "".join(
        path.read_text()
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] != "cli" and path.name != "errors.py"
    )

    assert [phrase.name for phrase in Phrase if f"Phrase.{phrase.name}" not in said] == []
