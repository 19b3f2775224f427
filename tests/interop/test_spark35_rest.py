"""Spark SQL with Iceberg's own runtime reads and writes tables of neve by name, beside a writer.

`make interop` runs this, with an environment that has that Spark; without one it is skipped.
"""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from neve.spark.spark_session import find_java
from tests.integration.rest_requests import schema_of
from tests.interop.test_spark35_iceberg import ENVIRONMENT, JAR

SCRIPT = Path(__file__).with_name("spark35_rest.py")
RUN_SECONDS = 500
# Format version, and how Spark writes deletes and updates.
KINDS = (("2", "copy-on-write"), ("2", "merge-on-read"), ("3", "merge-on-read"))
SCHEMA = schema_of(pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string()))

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Row = list[object]


@dataclass
class Script:
    """Statements for Spark, and what each has to return; None for an error."""

    statements: list[str] = field(default_factory=list)
    expected: list[list[Row] | None] = field(default_factory=list)

    def add(self, statement: str, expected: list[Row] | None = None) -> None:
        self.statements.append(statement)
        self.expected.append([] if expected is None else expected)

    def fails(self, statement: str) -> None:
        self.statements.append(statement)
        self.expected.append(None)

    def run(self, python: Path, url: str, folder: Path) -> list[dict[str, object]]:
        tasks, out = folder / "tasks.json", folder / "out.json"
        tasks.write_text(json.dumps({"url": url, "statements": self.statements, "out": str(out)}))
        (jar,) = python.parent.parent.glob(f"lib/python*/site-packages/*/jars/{JAR}")
        outside = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            [str(python), str(SCRIPT), str(tasks), str(jar), str(folder / "scratch")],
            env={
                **outside,
                **find_java(outside).environment,
                "PYSPARK_PYTHON": str(python),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_SECONDS,
        )
        assert done.returncode == 0, done.stderr[-4_000:]
        found: list[dict[str, object]] = json.loads(out.read_text())
        return found


def changes(script: Script, name: str) -> dict[int, str]:
    """Add statements of every kind on a table that has the keys 0 to 9; return what is left."""
    rows = {key: f"c{key}" for key in range(10)}

    def look() -> None:
        script.add(
            f"SELECT id, city FROM {name} ORDER BY id",
            [[key, city] for key, city in sorted(rows.items())],
        )

    look()
    script.add(f"INSERT INTO {name} VALUES (3, 'upserted'), (20, 'new')")
    rows |= {3: "upserted", 20: "new"}
    look()
    script.add(f"UPDATE {name} SET city = concat(city, '!') WHERE id < 3")
    rows |= {key: f"c{key}!" for key in range(3)}
    look()
    script.add(f"DELETE FROM {name} WHERE id IN (4, 5) OR city = 'new'")
    for key in (4, 5, 20):
        del rows[key]
    look()
    script.add(
        f"MERGE INTO {name} t USING (SELECT * FROM VALUES (1, 'merged'), (6, 'gone'), (30, 'added')"
        " AS s(id, city)) s ON t.id = s.id"
        " WHEN MATCHED AND s.city = 'gone' THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET city = s.city"
        " WHEN NOT MATCHED THEN INSERT (id, city) VALUES (s.id, s.city)"
    )
    rows |= {1: "merged", 30: "added"}
    del rows[6]
    look()
    script.fails(f"INSERT INTO {name} VALUES (40, 'a'), (40, 'b')")
    look()
    script.add(f"SELECT count(*) FROM {name} WHERE city LIKE 'c%'", [[5]])
    return rows


@pytest.fixture(scope="module")
def interop_python() -> Path:
    python = os.environ.get(ENVIRONMENT)
    if python is None:
        pytest.skip(f"`make interop` runs this: {ENVIRONMENT} names no Python with Spark 3.5")
    return Path(python)


def test_spark_sql_reads_and_writes_by_name(interop_python: Path, tmp_path: Path) -> None:
    script = Script()
    expected: dict[str, dict[int, str]] = {}
    with neve.open(tmp_path / "lake") as lake, lake.serve() as server:
        tables: dict[str, neve.Table] = {}
        for version, how in KINDS:
            name = f"shop.t{version}_{how.replace('-', '_')}"
            properties = {"format-version": version}
            for write in ("delete", "update", "merge"):
                properties[f"write.{write}.mode"] = how
            # A compaction between a statement's read and its commit would make Spark refuse it.
            table = tables[name] = lake.create_table(
                name,
                SCHEMA,
                "id",
                properties=properties,
                options=neve.TableOptions(background=False),
            )
            table.upsert([{"id": key, "city": f"c{key}"} for key in range(10)])
            table.flush()
            # Not flushed: Spark does not see it, and it comes after what Spark commits.
            table.put({"id": 9, "city": "of the writer"})
            expected[name] = changes(script, f"lake.{name}")
        script.add(
            "CREATE TABLE lake.shop.made (id BIGINT NOT NULL, city STRING) USING iceberg "
            "TBLPROPERTIES ('neve.primary-key' = 'id', 'format-version' = '2')"
        )
        script.add("INSERT INTO lake.shop.made VALUES (1, 'a')")
        script.add("INSERT INTO lake.shop.made VALUES (1, 'b'), (2, 'c')")
        script.add("SELECT * FROM lake.shop.made ORDER BY id", [[1, "b"], [2, "c"]])

        found = script.run(interop_python, server.url, tmp_path)

        for statement, wanted, got in zip(script.statements, script.expected, found, strict=True):
            if wanted is None:
                assert "40" in str(got.get("error")), statement
            else:
                assert got == {"rows": wanted}, statement
        for name, table in tables.items():
            read = table.refresh().scan().to_arrow().to_pylist()
            assert len({row["id"] for row in read}) == len(read)
            assert {row["id"]: row["city"] for row in read} == {
                **expected[name], 9: "of the writer",
            }  # fmt: skip
            assert table.verify(independent=True).problems == ()
        assert lake.load_table("shop.made").schema.key_columns[0].name == "id"
