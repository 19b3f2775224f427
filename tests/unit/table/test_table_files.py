"""What the users of a table share: definitions parsed once, contexts, readers, names of files."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

import neve
from neve.errors import Corruption
from neve.jobs.run import JobBase
from neve.model.data_file import FileFormat
from neve.table.file_writers import RunName
from neve.table.partitions import Partition
from neve.table.table_files import TableFiles
from tests.unit.read.table_bench import NUMBERED, TableBench, numbered, schema_of

COLUMNS = schema_of([pa.field("id", pa.int64()), pa.field("name", pa.string())], ["id"])


@pytest.fixture
def table(tmp_path: Path) -> Iterator[neve.Table]:
    with neve.open(tmp_path) as lake:
        yield lake.create_table(
            "a.b", COLUMNS.arrow_schema, ["id"], options=neve.TableOptions(background=False)
        )


class CountedIds:
    """Identifiers in a row."""

    def __init__(self) -> None:
        self._drawn = 0

    def uuid(self) -> UUID:
        self._drawn += 1
        return UUID(int=self._drawn)

    def jitter(self) -> float:
        return 0.0

    def process(self) -> str:
        return "test"


def test_engine_and_jobs_read_under_the_very_same_schema(table: neve.Table) -> None:
    with table.evolve() as change:
        change.add_column("amount", "double")
    parts = table._open.engine.parts
    base = JobBase(parts, RunName.drawn(parts.ids), table.version)
    base.close()

    assert base.schema is table._open.engine.current.view.context.schema
    assert base.schema is parts.definitions.schema(base.version.facts.schema_id)


def test_a_schema_has_one_context() -> None:
    files = TableBench().open_files

    assert files.context(NUMBERED.schema_id) is files.context(NUMBERED.schema_id)


def test_an_old_version_is_read_under_its_own_schema_or_the_one_asked_for(
    table: neve.Table,
) -> None:
    table.put({"id": 1, "name": "a"})
    table.flush()
    files, before = table._open.engine.files, table._open.engine.current.view.files.version
    with table.evolve() as change:
        change.rename_column("name", "title")
    key = table._open.engine.current.view.context.encode_key(1)

    assert files.view(before).get(key) == {"id": 1, "name": "a"}
    assert files.view(before, table.schema.schema_id).get(key) == {"id": 1, "title": "a"}


def test_a_schema_under_another_id_is_damage() -> None:
    with pytest.raises(Corruption, match="schema 0 is stored under the id 98"):
        TableBench().open_files.definitions.add({98: NUMBERED.to_json()}, {})


def test_a_schema_or_spec_that_never_was_is_damage(table: neve.Table) -> None:
    definitions = table._open.engine.files.definitions

    with pytest.raises(Corruption, match="never had schema 99"):
        definitions.schema(99)
    with pytest.raises(Corruption, match="never had partition spec 99"):
        definitions.spec(99)


def test_a_file_is_opened_once_until_it_is_forgotten() -> None:
    bench = TableBench()
    file = bench.add(numbered(range(3)))
    files = bench.open_files
    reader = files.reader(file)

    assert files.reader(file) is reader
    files.forget([file.path])
    assert files.reader(file) is not reader


def test_new_files_are_named_by_the_ids_passed(table: neve.Table) -> None:
    files = TableFiles(table._open.engine.parts, table.schema.schema_id, ids=CountedIds())
    writer = files.writers.data_files(
        table.schema,
        spec_id=0,
        partition=Partition(values=(), path="", positions=None),
        level=0,
        file_format=FileFormat.COLUMNAR,
    )
    writer.append(pa.table({"id": [1], "name": ["a"]}, schema=table.schema.arrow_schema))

    (written,) = writer.finish()

    assert written.file.path == f"data/{UUID(int=1).hex}.parquet"
