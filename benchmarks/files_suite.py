"""The workloads of files: rows in and out of a table as text and as dicts, beside DuckDB.

Each command runs in its own process, start-up included, and DuckDB in one, too, on one thread. Both
tables have the same primary key, and both are on disk.
"""

import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

import neve
from benchmarks.harness import (
    BuildWorkload,
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Scale,
    Shows,
    Stopwatch,
    Trial,
    Workload,
)
from benchmarks.result_file import Pace

NEVE: Final = "neve"
DUCKDB: Final = "DuckDB"
_ROWS_FACTOR: Final = 5
_TABLE: Final = "bench.rows"
_DEFINITION: Final = (
    "create table r (id bigint primary key, name varchar, score double, visits int)"
)
_READERS: Final = {
    "jsonl": "read_json('{}', format='newline_delimited', "
    "columns={{id: 'bigint', name: 'varchar', score: 'double', visits: 'int'}})",
    "csv": "read_csv('{}', header=true)",
}
_WRITERS: Final = {"jsonl": "(format json)", "csv": "(format csv, header)"}


def _rows(count: int) -> pa.Table:
    rng = np.random.default_rng(5)
    return pa.table(
        {
            "id": pa.array(rng.permutation(count), pa.int64()),
            "name": pa.array([f"{number:x}" * 3 for number in rng.integers(0, 1 << 32, count)]),
            "score": pa.array(rng.random(count) * 1_000),
            "visits": pa.array(rng.integers(0, 1_000, count), pa.int32()),
        }
    )


def _facts(rows: pa.Table) -> tuple[int, int, float]:
    """Return a few facts that other rows would not have."""
    visits, score = (rows.column(name).to_numpy() for name in ("visits", "score"))
    return rows.num_rows, int(visits.sum()), float(f"{score.sum():.9g}")


def _new_table(directory: Path) -> neve.Lake:
    lake = neve.open(directory / "lake")
    schema = {"id": "long!", "name": "string", "score": "double", "visits": "int"}
    lake.create_table(_TABLE, schema, ["id"]).close()
    return lake


def _stored(lake: neve.Lake) -> tuple[int, int, float]:
    with lake, lake.table(_TABLE) as table:
        return _facts(table.scan(columns=["visits", "score"]).to_arrow())


def _duckdb_facts(database: Path) -> tuple[int, int, float]:
    with duckdb.connect(str(database)) as opened:
        return _facts(opened.execute("select visits, score from r").to_arrow_table())


def _neve(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "neve", *arguments], check=True, capture_output=True)


def _duckdb(database: Path, *statements: str) -> None:
    code = (
        "import duckdb, sys\n"
        "with duckdb.connect(sys.argv[1], config={'threads': 1}) as opened:\n"
        "    for text in sys.argv[2:]:\n"
        "        opened.execute(text)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(database), *statements], check=True)


def _outcome(rows: pa.Table, answer: object, expected: object) -> Outcome:
    return Outcome(
        rows=rows.num_rows, calls=1, logical_bytes=rows.nbytes, answer=answer, expected=expected
    )


def _workload(
    name: str, sentence: str, trials: Mapping[str, Trial], *, rows: pa.Table, target: float | None
) -> Workload:
    kinds = {NEVE: Kind.NEVE, DUCKDB: Kind.PEER}
    return Workload(
        name=name,
        sentence=sentence,
        unit="rows",
        candidates=[
            Candidate(name=who, kind=kinds[who], trial=trial) for who, trial in trials.items()
        ],
        ratios=[Ratio(of=NEVE, to=DUCKDB, by=Pace.CPU, target=target)],
        parameters={"rows": rows.num_rows},
        shows=Shows.RATE,
    )


def _import(form: str, target: float | None, scale: Scale, directory: Path) -> Workload:
    """Read a file into a new table."""
    rows = _rows(scale.rows * _ROWS_FACTOR)
    file = directory / f"rows.{form}"
    _duckdb_export(rows, file, form)

    def by_neve(place: Path, watch: Stopwatch) -> Outcome:
        lake = _new_table(place)
        with watch:
            _neve("import", _TABLE, str(file), "--lake", str(place / "lake"))
        return _outcome(rows, _stored(lake), _facts(rows))

    def by_duckdb(place: Path, watch: Stopwatch) -> Outcome:
        database = place / "rows.duckdb"
        with watch:
            reader = _READERS[form].format(file)
            _duckdb(database, _DEFINITION, f"insert into r select * from {reader}")
        return _outcome(rows, _duckdb_facts(database), _facts(rows))

    return _workload(
        f"files_import_{form}",
        f"Import of a file of {form} into a new table, checked, durable and published.",
        {NEVE: by_neve, DUCKDB: by_duckdb},
        rows=rows,
        target=target,
    )


def _duckdb_export(rows: pa.Table, file: Path, form: str) -> None:
    with duckdb.connect() as opened:
        opened.register("given", rows)
        opened.execute(f"copy given to '{file}' {_WRITERS[form]}")


def _export(form: str, target: float | None, scale: Scale, directory: Path) -> Workload:
    """Write a table to a file."""
    rows = _rows(scale.rows * _ROWS_FACTOR)
    database = directory / "rows.duckdb"
    with _new_table(directory) as lake, lake.table(_TABLE) as table:
        table.upsert(rows)
        table.flush()
    with duckdb.connect(str(database)) as opened:
        opened.register("given", rows)
        opened.execute(_DEFINITION)
        opened.execute("insert into r select * from given")

    def written(file: Path) -> tuple[int, int, float]:
        with duckdb.connect() as opened:
            reader = _READERS[form].format(file)
            return _facts(opened.execute(f"select visits, score from {reader}").to_arrow_table())

    def by_neve(place: Path, watch: Stopwatch) -> Outcome:
        file = place / f"rows.{form}"
        with watch:
            _neve("scan", _TABLE, str(file), "--lake", str(directory / "lake"))
        return _outcome(rows, written(file), _facts(rows))

    def by_duckdb(place: Path, watch: Stopwatch) -> Outcome:
        file = place / f"rows.{form}"
        with watch:
            _duckdb(database, f"copy r to '{file}' {_WRITERS[form]}")
        return _outcome(rows, written(file), _facts(rows))

    return _workload(
        f"files_export_{form}",
        f"Export of a table to a file of {form}.",
        {NEVE: by_neve, DUCKDB: by_duckdb},
        rows=rows,
        target=target,
    )


def build_dicts(scale: Scale, directory: Path) -> Workload:
    """Write a list of dicts."""
    del directory
    rows = _rows(scale.rows)
    dicts = rows.to_pylist()

    def by_neve(place: Path, watch: Stopwatch) -> Outcome:
        lake = _new_table(place)
        with lake.table(_TABLE, options=neve.TableOptions(background=False)) as table, watch:
            table.upsert(dicts)
        return _outcome(rows, _stored(lake), _facts(rows))

    def by_duckdb(place: Path, watch: Stopwatch) -> Outcome:
        database = place / "rows.duckdb"
        with duckdb.connect(str(database), config={"threads": 1}) as opened:
            opened.execute(_DEFINITION)
            with watch:
                given = pa.Table.from_pylist(dicts)
                opened.register("given", given)
                opened.execute("insert into r select * from given")
        return _outcome(rows, _duckdb_facts(database), _facts(rows))

    return _workload(
        "files_upsert_dicts",
        "A list of dicts, written and synced; DuckDB gets them as an Arrow table.",
        {NEVE: by_neve, DUCKDB: by_duckdb},
        rows=rows,
        target=None,
    )


FILES_WORKLOADS: Final[Mapping[str, BuildWorkload]] = {
    "files_import_jsonl": partial(_import, "jsonl", 0.3),
    "files_import_csv": partial(_import, "csv", None),
    "files_export_csv": partial(_export, "csv", 0.5),
    "files_export_jsonl": partial(_export, "jsonl", None),
    "files_upsert_dicts": build_dicts,
}
