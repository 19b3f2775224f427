"""SparkBench: the session and the tables that the Spark workloads share.

    plain/        rows as plain Parquet, in eight files by key: what the machine allows
    changes-1/    rows for a hundredth of the keys; changes-10/ for a tenth
    merged/       rows for a tenth as many keys, of which every second is new
    lake/         the same rows as plain/, loaded into a table
    updated/      lake after changes-10 was upserted: a tenth of its rows is dead
    runs/         eight overlapping runs of rows, as Parquet; runs-lake/ has them as upserts
    work/         where lakes are made, and put back for those who write: a lake that is found at
                  another place than before is published again, which is not what is measured
    peers/        tables of other libraries, with the rows of plain/
    s3://…        updated/ once more, in the bucket of a SeaweedFS on this machine

Made on first use; nobody changes them but work/. All files are zstd of level 1. CPU is that of the
whole tree of processes: driver, Java, Python workers.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import neve
from benchmarks.harness import SEED, Measured, Stopwatch
from benchmarks.peer_environment import PeerEnvironment
from benchmarks.spark_peers import SparkPeers
from neve import spark as ns
from neve.storage.open_store import open_store
from neve.testing.s3_servers import seaweedfs

Keys: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
Answer: TypeAlias = tuple[int, int, int]
"""The number of rows, the sum of their stamps and the sum of their ids."""

NAME: Final = "bench.rows"
ROW_BYTES: Final = 60
_FILES: Final = 8
_CITIES: Final = 1_000
_RUNS: Final = 8
_CLASS_PATH: Final = "spark.driver.extraClassPath"
S3A_JARS: Final = Path(__file__).parents[1] / ".venv-s3a" / "jars"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkScale:
    """How much work the Spark benchmarks do."""

    rows: int
    planned_files: Sequence[int]
    """Numbers of files of the tables whose scans are planned."""


def spark_scale(rows: int, *, quick: bool) -> SparkScale:
    """Return the sizes for tables of so many rows."""
    return SparkScale(rows=rows, planned_files=(50, 200) if quick else (1_000, 10_000))


def rows_of(keys: Keys, *, stamp: int) -> pa.Table:
    """Make rows for keys; the stamp says which rows are newer, so that sums tell."""
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

    def __init__(
        self, directory: Path, scale: SparkScale, environment: PeerEnvironment | None = None
    ) -> None:
        """The peers' environment is the project's when none is given."""
        self.directory = directory
        self.scale = scale
        self.peers = SparkPeers(directory / "peers", environment or PeerEnvironment())
        self._work = directory / "work"
        self._is_prepared = False
        self.running = ExitStack()

    def close(self) -> None:
        """End Spark, the bucket and the peers, and remove every table."""
        self.running.close()
        self.peers.close()
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
                "spark.hadoop.parquet.compression.codec.zstd.level": "1",
                **({_CLASS_PATH: f"{S3A_JARS}/*"} if any(S3A_JARS.glob("*.jar")) else {}),
            },
        )

    @property
    def has_s3a(self) -> bool:
        """Whether Java can read a bucket itself: `make interop` fetches what that needs."""
        return str(S3A_JARS) in (self.session.conf.get(_CLASS_PATH, "") or "")

    # Tables

    @cached_property
    def plain(self) -> Path:
        """All rows, as plain Parquet."""
        return self._files("plain", np.array_split(np.arange(self.scale.rows), _FILES), stamp=1)

    def changes(self, percent: int) -> Path:
        """Return rows for some of the keys, spread evenly."""
        return self._files(f"changes-{percent}", [self.changed_keys(percent)], stamp=2)

    def changed_keys(self, percent: int) -> Keys:
        """Return the keys that the changes have."""
        return np.arange(0, self.scale.rows, 100 // percent)

    def merged(self) -> Path:
        """Return rows for a tenth as many keys as there are."""
        return self._files("merged", [self.merged_keys()], stamp=2)

    def merged_keys(self) -> Keys:
        """Return keys of which every second is new to the table."""
        keys = self.changed_keys(10)
        keys[::2] += 2 * self.scale.rows
        return keys

    @cached_property
    def lake(self) -> Path:
        """A table of all rows."""
        self.make_table(self._work)
        ns.load(self.read(self.plain), self._work, NAME)
        return self._work.rename(self.directory / "lake")

    @cached_property
    def updated(self) -> Path:
        """The table after a tenth of its rows was replaced."""
        ns.upsert(self.read(self.changes(10)), self.put_back(self.lake), NAME)
        return self._work.rename(self.directory / "updated")

    @cached_property
    def bucket(self) -> tuple[str, dict[str, str]]:
        """The updated table in a bucket: its location and its storage options."""
        at = self.running.enter_context(seaweedfs())
        location, options = at.location("lake"), at.storage_options(listing="unordered")
        source, target = (
            open_store(str(self.updated)),
            open_store(location, storage_options=options),
        )
        for each in source.list(""):
            target.put(each.path, source.get(each.path).payload)
        if self.has_s3a:
            for name, value in {
                "endpoint": at.endpoint,
                "endpoint.region": options["region"],
                "path.style.access": "true",
                "connection.ssl.enabled": "false",
                "access.key": at.access_key_id,
                "secret.key": at.secret_access_key,
            }.items():
                self.session.conf.set(f"fs.s3a.{name}", value)
        return location, options

    @cached_property
    def runs(self) -> Path:
        """Runs that overlap."""
        return self._files("runs", self._run_keys)

    @cached_property
    def _run_keys(self) -> Sequence[Keys]:
        """A fifth of the keys for each run, drawn again."""
        drawn = np.random.default_rng(SEED)
        return [
            np.sort(drawn.choice(self.scale.rows, self.scale.rows // 5, replace=False))
            for _ in range(_RUNS)
        ]

    @cached_property
    def runs_lake(self) -> Path:
        """A table into which the runs were upserted, one after another."""
        shutil.rmtree(self._work, ignore_errors=True)
        self.make_table(self._work)
        for number in range(_RUNS):
            ns.upsert(self.read(self.runs / f"{number}.parquet"), self._work, NAME)
        return self._work.rename(self.directory / "runs-lake")

    def lake_of_files(self, count: int) -> Path:
        """Return a table of so many files, a row or a few in each."""
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
        if self._is_prepared:
            return
        for frame in (self.read(self.plain), self.read_lake(self.updated)):
            frame.groupBy("city").agg(sf.max("name"), sf.sum("amount")).count()
        self._is_prepared = True

    # What trials do

    def read(self, place: Path) -> DataFrame:
        """Read Parquet as Spark does."""
        return self.session.read.parquet(str(place))

    def read_lake(self, place: Path) -> DataFrame:
        """Read a table as neve does."""
        frame: DataFrame = ns.read(self.session, place, NAME)
        return frame

    def read_bucket(self, *, native: bool) -> DataFrame:
        """Read the table in the bucket, through Java or through Python."""
        location, options = self.bucket
        frame: DataFrame = ns.read(
            self.session, location, NAME, native=native, storage_options=options
        )
        return frame

    def make_table(self, place: Path) -> None:
        """Make an empty table for rows."""
        with neve.open(place) as lake:
            lake.create_table(NAME, rows_of(np.arange(1), stamp=0).schema, ["id"])

    def put_back(self, lake: Path) -> Path:
        """Return a copy of a lake for a writer, until the next one is put back."""
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(lake, self._work)
        return self._work

    # Answers

    def base_answer(self) -> Answer:
        """Return what the rows of a table add up to before anything changes them."""
        rows = self.scale.rows
        return rows, rows, rows * (rows - 1) // 2

    def answer_after(self, keys: Keys) -> Answer:
        """Return what the rows add up to when there is a newer one for each of the keys."""
        rows, stamps, ids = self.base_answer()
        new = keys[keys >= rows]
        replaced = len(keys) - len(new)
        return rows + len(new), stamps + replaced + 2 * len(new), ids + int(new.sum())

    def runs_answer(self) -> Answer:
        """Return what the newest rows of all runs add up to."""
        newest = np.full(self.scale.rows, -1)
        for number, keys in enumerate(self._run_keys):
            newest[keys] = number
        keys = np.flatnonzero(newest >= 0)
        return len(keys), int(newest[keys].sum()), int(keys.sum())

    @staticmethod
    def answer_of_lake(lake: Path) -> Answer:
        """Add up the rows of a table, read by the embedded engine."""
        with neve.open(lake) as catalog:
            table = catalog.table(NAME, read_only=True).scan(columns=["id", "stamp"]).to_arrow()
        return table.num_rows, int(pc.sum(table["stamp"]).as_py()), int(pc.sum(table["id"]).as_py())

    def answer_of_files(self, place: Path) -> Answer:
        """Add up the rows of Parquet files."""
        frame = self.read(place).agg(sf.count("*"), sf.sum("stamp"), sf.sum("id"))
        rows, stamps, ids = (int(value) for value in frame.collect()[0])
        return rows, stamps, ids

    def driver_megabytes(self) -> float:
        """Memory that the driver holds: Python's and Java's."""
        here = psutil.Process()
        tree = [here, *(each for each in here.children(recursive=True) if "java" in each.name())]
        return float(sum(each.memory_info().rss for each in tree)) / 1e6

    def _files(self, name: str, keys: Sequence[Keys], *, stamp: int | None = None) -> Path:
        """Write a file for each of the keys; without a stamp, its number is the one of its rows."""
        place = self.directory / name
        if not place.exists():
            place.mkdir(parents=True)
            for number, each in enumerate(keys):
                rows = rows_of(each, stamp=number if stamp is None else stamp)
                pq.write_table(
                    rows, place / f"{number}.parquet", compression="zstd", compression_level=1
                )
        return place


@contextmanager
def timed(stopwatch: Stopwatch) -> Iterator[None]:
    """Measure a block with the CPU of all processes that this one started.

    Those that end meanwhile are not counted. Spark ends Python workers that were idle for a minute,
    which used nothing in the block, and keeps those that work.
    """
    cpu_before, began = _cpu_by_process(), time.perf_counter()
    yield
    wall = time.perf_counter() - began
    used = sum(after - cpu_before.get(pid, 0.0) for pid, after in _cpu_by_process().items())
    stopwatch.take(Measured(wall_seconds=wall, cpu_seconds=used, written_bytes=None))


def _cpu_by_process() -> dict[int, float]:
    here = psutil.Process()
    used: dict[int, float] = {}
    for process in [here, *here.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used[process.pid] = times.user + times.system
    return used
