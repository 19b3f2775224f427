"""SparkBench: the session and the tables that the Spark workloads share.

    plain/        rows as plain Parquet, in eight files by key: what the machine allows
    changes/      rows for a tenth of the keys, half of it others than before
    lake/         the same rows as plain/, loaded into a table
    updated/      lake after the changes were upserted: a tenth of its rows is dead
    runs/         eight overlapping runs of rows, as Parquet; runs-lake/ has them as upserts

Made on first use; nobody changes them: what writes gets a copy. CPU is that of the whole tree of
processes: driver, Java, Python workers.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import neve
from benchmarks.harness import SEED, Measured, Stopwatch
from neve import spark as ns

NAME: Final = "bench.rows"
ROW_BYTES: Final = 60
_FILES: Final = 8
_CITIES: Final = 1_000
_RUNS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkScale:
    """How much work the Spark benchmarks do."""

    rows: int
    planned_files: Sequence[int]
    """Numbers of files of the tables whose scans are planned."""


def spark_scale(rows: int, *, quick: bool) -> SparkScale:
    """Give the sizes for tables of so many rows."""
    return SparkScale(rows=rows, planned_files=(50, 200) if quick else (1_000, 10_000))


def rows_of(keys: "np.ndarray[tuple[int], np.dtype[np.int64]]", *, stamp: int) -> pa.Table:
    """Make rows for ascending keys; the stamp is in their numbers, so that sums tell."""
    return pa.table(
        {
            "id": pa.array(keys),
            "city": pa.array(np.char.add("city-", (keys % _CITIES).astype(np.str_))),
            "name": pa.array(np.char.add("name-", keys.astype(np.str_))),
            "amount": pa.array(keys * 0.25),
            "weight": pa.array(keys * 0.5),
            "stamp": pa.array(np.full(len(keys), stamp, np.int32)),
        }
    )


class SparkBench:
    """Everything that workloads share; close it in the end."""

    def __init__(self, directory: Path, scale: SparkScale) -> None:
        self.directory = directory
        self.scale = scale

    def close(self) -> None:
        """End Spark and remove every table."""
        if "session" in self.__dict__:
            self.session.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @cached_property
    def session(self) -> SparkSession:
        """A session on this machine."""
        return ns.session(
            master="local[2]",
            app_name="neve benchmarks",
            config={
                "spark.driver.memory": "4g",
                "spark.sql.shuffle.partitions": "8",
                "spark.local.dir": str(self.directory / "spark"),
                "spark.sql.parquet.compression.codec": "zstd",
            },
        )

    # Tables

    @cached_property
    def plain(self) -> Path:
        """All rows, as plain Parquet."""
        return self._files("plain", np.array_split(np.arange(self.scale.rows), _FILES), stamp=1)

    @cached_property
    def changes(self) -> Path:
        """Rows for a tenth of the keys, spread evenly."""
        return self._files("changes", [np.arange(0, self.scale.rows, 10)], stamp=2)

    @cached_property
    def lake(self) -> Path:
        """A table of all rows."""
        place = self.directory / "lake"
        self.make_table(place)
        ns.load(self.read(self.plain), place, NAME)
        return place

    @cached_property
    def updated(self) -> Path:
        """The table after a tenth of its rows was replaced."""
        place = self.copy_of(self.lake, self.directory / "updated")
        ns.upsert(self.read(self.changes), place, NAME)
        return place

    @cached_property
    def runs(self) -> Path:
        """Runs that overlap: each has a fifth of the keys, drawn anew."""
        drawn = np.random.default_rng(SEED)
        keys = [
            np.sort(drawn.choice(self.scale.rows, self.scale.rows // 5, replace=False))
            for _ in range(_RUNS)
        ]
        place = self.directory / "runs"
        place.mkdir(parents=True)
        for number, each in enumerate(keys):
            pq.write_table(
                rows_of(each, stamp=number), place / f"{number}.parquet", compression="zstd"
            )
        return place

    @cached_property
    def runs_lake(self) -> Path:
        """A table into which the runs were upserted, one after another."""
        place = self.directory / "runs-lake"
        self.make_table(place)
        for number in range(_RUNS):
            ns.upsert(self.read(self.runs / f"{number}.parquet"), place, NAME)
        return place

    def lake_of_files(self, count: int) -> Path:
        """Give a table of so many files, a row or a few in each."""
        place = self.directory / f"files-{count}"
        if not place.exists():
            options = neve.TableOptions(background=False, iceberg_publish="demand", dual_levels=0)
            with neve.open(place) as lake:
                schema = rows_of(np.arange(1), stamp=0).schema
                table = lake.create_table(
                    NAME, schema, ["id"], partition_by=["truncate(1, id)"], options=options
                )
                table.upsert(rows_of(np.arange(count), stamp=0))
                table.flush()
        return place

    def prepare(self) -> None:
        """Make what most workloads read, and let Java compile: the first one would pay for all."""
        for frame in (self.read(self.plain), self.read(self.changes), self.read_lake(self.updated)):
            frame.groupBy("city").agg(sf.max("name"), sf.sum("amount")).count()

    # What trials do

    def read(self, place: Path) -> DataFrame:
        """Read Parquet as Spark does."""
        return self.session.read.parquet(str(place))

    def read_lake(self, place: Path) -> DataFrame:
        """Read a table as neve does."""
        frame: DataFrame = ns.read(self.session, place, NAME)
        return frame

    def make_table(self, place: Path) -> None:
        """Make an empty table for rows."""
        with neve.open(place) as lake:
            lake.create_table(NAME, rows_of(np.arange(1), stamp=0).schema, ["id"])

    @staticmethod
    def copy_of(lake: Path, place: Path) -> Path:
        """Give a copy of a lake."""
        shutil.copytree(lake, place)
        return place

    @staticmethod
    def answer_of(lake: Path) -> tuple[int, int]:
        """Give the number of rows and the sum of their stamps, read by the embedded engine."""
        with neve.open(lake) as catalog:
            table = catalog.table(NAME, read_only=True).scan(columns=["stamp"]).to_arrow()
        return table.num_rows, int(pc.sum(table["stamp"]).as_py() or 0)

    def driver_megabytes(self) -> float:
        """Memory that the driver holds: Python's and Java's."""
        here = psutil.Process()
        tree = [here, *(each for each in here.children(recursive=True) if "java" in each.name())]
        return float(sum(each.memory_info().rss for each in tree)) / 1e6

    def _files(
        self, name: str, keys: Sequence["np.ndarray[tuple[int], np.dtype[np.int64]]"], *, stamp: int
    ) -> Path:
        place = self.directory / name
        place.mkdir(parents=True)
        for number, each in enumerate(keys):
            pq.write_table(
                rows_of(each, stamp=stamp), place / f"{number}.parquet", compression="zstd"
            )
        return place


@contextmanager
def timed(stopwatch: Stopwatch) -> Iterator[None]:
    """Measure a block with the CPU of all processes that this one started."""
    cpu_before, began = _tree_cpu(), time.perf_counter()
    yield
    wall = time.perf_counter() - began
    used = sum(
        after - cpu_before.get(pid, 0.0) for pid, after in _tree_cpu().items()
    )  # of processes that ended meanwhile, nothing is known
    stopwatch.take(Measured(wall_seconds=wall, cpu_seconds=used, written_bytes=None))


def _tree_cpu() -> dict[int, float]:
    here = psutil.Process()
    used: dict[int, float] = {}
    for process in [here, *here.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used[process.pid] = times.user + times.system
    return used
