"""SQL reaches the tables of the lake and the frames of the caller, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from neve import InvalidArgument, NeveError
from neve.storage.memory_store import forget_memory_stores

secret_frame = pa.table({"x": [1]})


@pytest.fixture
def lake() -> Iterator[neve.Lake]:
    with neve.open("memory://sql-sandbox") as lake:
        lake.create_table("a.b", {"id": "long"}, primary_key="id").put({"id": 1})
        yield lake
    forget_memory_stores()


ESCAPES = [
    "select * from read_text('{file}')",
    "select * from read_blob('{file}')",
    "select * from read_csv('{file}')",
    "select * from read_json('{file}')",
    "select * from read_parquet('{file}')",
    "select * from glob('{folder}/*')",
    "select * from '{file}'",
    'select * from "{file}"',
    "select * from query('select * from read_text(''{file}'')')",
    "select * from query_table('{file}')",
    "with x as (select * from read_text('{file}')) select * from x join a.b on true",
    "select * from secret_frame",
    "from secret_frame",
    "select * from query_table('secret_frame')",
    "copy a.b to '{folder}/out.csv'",
    "copy (select 1) to '{folder}/out.csv'",
    "copy a.b from '{file}'",
    "export database '{folder}/out'",
    "import database '{folder}/out'",
    "attach '{folder}/out.db' as out",
    "attach ':memory:' as other",
    "detach memory",
    "use memory",
    "install httpfs",
    "load httpfs",
    "force install httpfs",
    "update extensions",
    "set enable_external_access = true",
    "set lock_configuration = false",
    "reset lock_configuration",
    "set memory_limit = '1TB'",
    "pragma enable_external_access = true",
    "pragma database_list",
    "call pragma_database_list()",
    "select * from sqlite_scan('{folder}/x.db', 't')",
    "select * from iceberg_scan('{folder}')",
    "select * from read_text('http://127.0.0.1:9/x')",
    "select * from read_parquet('s3://bucket/x')",
    "create secret s (type s3)",
    "create view v as select 1",
    "create macro m() as 1",
    "create function m() as 1",
    "create temp table t as select 1",
    "create type t as int",
    "prepare p as select 1",
    "execute p",
    "vacuum",
    "checkpoint",
    "select getenv('HOME')",
    "explain copy a.b to '{folder}/out.csv'",
    "explain analyze copy (select 1) to '{folder}/out.csv'",
    "select 1; copy a.b to '{folder}/out.csv'",
    "insert into a.b select length(content) from read_text('{file}')",
    "describe select * from read_text('{file}')",
    "summarize '{file}'",
    "pivot '{file}' on x",
]  # fmt: skip


@pytest.mark.parametrize("escape", ESCAPES)
def test_no_statement_reaches_the_outside(lake: neve.Lake, escape: str, tmp_path: Path) -> None:
    folder = tmp_path / "outside"
    folder.mkdir()
    file = folder / "secret.csv"
    file.write_text("x\n1\n")

    with pytest.raises(NeveError):
        lake.sql(escape.format(file=file, folder=folder))

    assert list(folder.iterdir()) == [file]
    assert lake.sql("select count(*) from a.b").fetchall() == [(1,)]


def test_names_of_one_statement_are_unknown_to_the_next(lake: neve.Lake) -> None:
    with lake.sql_session() as session:
        session.sql("select * from f", f=secret_frame)
        with pytest.raises(NeveError):
            session.sql("select * from f")


def test_external_access_has_to_be_asked_for(lake: neve.Lake, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("x\n1\n")

    with lake.sql_session(external_access=True) as session:
        found = session.sql(f"select x from '{file}' join a.b on x = id").fetchall()
        with pytest.raises(InvalidArgument, match="COPY"):
            session.sql(f"copy a.b to '{file}'")

    assert found == [(1,)]
    with pytest.raises(NeveError):
        lake.sql(f"select x from '{file}'")
