"""The driver of a job on a cluster that shares nothing with it but a bucket.

Run as a program, for a process has one context of Spark: the master, the location of an empty lake,
its storage options as JSON, the number of rows, and whether an executor and a worker die meanwhile.
The keys of the bucket are in the environment, here as on the workers. Its rows are compared with
a dict after every step.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import neve
from neve import spark as ns
from neve.storage.open_store import open_store

NAME, COPY = "shop.orders", "shop.copy"
SCHEMA = {"id": int, "v": int, "text": str}
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "50ms",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

Model = dict[int, tuple[int, str]]


def killer(name: str, place: str, options: dict[str, str]) -> Callable[[], None]:
    """Return what kills the executor that calls it, or its worker as well, only the first time."""

    def parent(pid: int) -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    tried: list[bool] = []

    def kill() -> None:
        # Once for each task: it is called for many rows, and asks the bucket.
        if tried:
            return
        tried.append(True)
        marks = open_store(place, storage_options=options)
        # Its own bytes are how a writer recognizes its object.
        if marks.put_if_absent(f"killed-{name}", uuid4().bytes) is None:
            return
        pid, victims = os.getpid(), []
        while pid > 1:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command:
                victims.append(pid)
            elif b"deploy.worker.Worker" in command and name == "worker":
                victims.insert(0, pid)
            pid = parent(pid)
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        os._exit(1)

    return kill


class Job:
    """The tables and their model."""

    def __init__(
        self, session: SparkSession, location: str, options: dict[str, str], rows: int
    ) -> None:
        self.session = session
        self.location = location
        self.options = options
        self.rows = rows
        self.model: Model = {}

    def frame(self, ids: range, text: str, factor: int) -> DataFrame:
        self.model |= {n: (n * factor, text) for n in ids}
        numbers = self.session.range(ids.start, ids.stop, ids.step, 4)
        return numbers.selectExpr("id", f"id * {factor} as v", f"'{text}' as text")

    def load_and_upsert(self) -> None:
        first = self.frame(range(self.rows), "loaded", 1)
        ns.load(first, self.location, NAME, storage_options=self.options)
        more = self.frame(range(0, 2 * self.rows, 3), "upserted", 2)
        ns.upsert(more, self.location, NAME, job_id="u", storage_options=self.options)

    def merge(self, kill: Callable[[], None] | None) -> None:
        """Merge; an executor dies in the stage that writes, after its first rows."""
        last = 2 * self.rows - 1
        source = self.session.range(0, 2 * self.rows, 2, 4).selectExpr("id", "id * 5 as v")

        def checked(number: int) -> int:
            if kill is not None and number > last // 3:
                kill()
            return number

        value = sf.udf(checked, "long")(sf.col("source.v"))
        ns.merge(
            source,
            self.location,
            NAME,
            when_matched=[
                ns.Clause("delete", "target.text = 'loaded' and source.id % 10 = 0"),
                ns.Clause("update", set={"v": value + sf.col("target.v")}),
            ],
            when_not_matched=ns.Clause("insert", set={"v": value, "text": "'merged'"}),
            storage_options=self.options,
        )
        for n in range(0, 2 * self.rows, 2):
            if n not in self.model:
                self.model[n] = (n * 5, "merged")
            elif self.model[n][1] == "loaded" and n % 10 == 0:
                del self.model[n]
            else:
                self.model[n] = (n * 5 + self.model[n][0], self.model[n][1])

    def apply(self, kill: Callable[[], None] | None) -> None:
        """Apply changes; a worker is lost while they are read, and with it what it shuffled."""
        count = 3 * self.rows
        changes = self.session.range(0, count, 1, 4).selectExpr(
            "id % 300 as id",
            "id as v",
            "'applied' as text",
            "case when id % 7 = 0 then 'delete' else 'upsert' end as op",
        )

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if kill is not None and pa.compute.max(batch.column("v")).as_py() > count // 2:
                    kill()
                yield batch

        fed = changes.mapInArrow(read, changes.schema)
        ns.apply(fed, self.location, NAME, order_by="v", storage_options=self.options)
        for v in range(count):
            if v % 7 == 0:
                self.model.pop(v % 300, None)
            else:
                self.model[v % 300] = (v, "applied")

    def copy(self, checkpoint: Path) -> None:
        """Stream the changes of the table into another."""
        feed = self.session.readStream.format("neve").option("table", NAME).option("since", "0")
        for name, value in self.options.items():
            feed = feed.option(f"storage.{name}", value)
        kept = feed.load(self.location).where("_change_type != 'update_preimage'")
        words = {"insert": "upsert", "update_postimage": "upsert", "delete": "delete"}
        apply_each = ns.apply_batch(
            self.location,
            COPY,
            app_id="copy",
            op="_change_type",
            order_by="_commit_version",
            operations=words,
            storage_options=self.options,
        )
        query = (
            kept.drop("_commit_timestamp")
            .writeStream.foreachBatch(apply_each)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def check(self, name: str = NAME) -> None:
        """Compare what workers read with the model."""
        frame = ns.read(self.session, self.location, name, storage_options=self.options)
        found = {row.id: (row.v, row.text) for row in frame.collect()}
        assert found == self.model, f"{len(found)} rows, {len(self.model)} expected"


def sees(session: SparkSession, folder: Path) -> bool:
    """Return whether a worker sees what is in the driver's directory."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            there = [folder.is_dir() and any(folder.iterdir())] * batch.num_rows
            yield pa.RecordBatch.from_arrays([pa.array(there)], names=["there"])

    folder.joinpath("mine").touch()
    return any(
        row.there for row in session.range(0, 4, 1, 4).mapInArrow(look, "there boolean").collect()
    )


def main(master: str, location: str, options_json: str, rows: str, deaths: str) -> None:
    options: dict[str, str] = json.loads(options_json)
    here = Path.cwd()
    session = ns.session(
        master=master,
        config={
            **SETTINGS,
            "spark.local.dir": str(here / "local"),
            "spark.sql.warehouse.dir": str(here / "warehouse"),
        },
    )
    with neve.open(location, storage_options=options) as lake:
        for name in (NAME, COPY):
            lake.create_table(name, SCHEMA, "id").close()
    print("sees", sees(session, here))
    job = Job(session, location, options, int(rows))
    dies = deaths == "deaths"
    job.load_and_upsert()
    job.check()
    job.merge(killer("executor", location, options) if dies else None)
    job.check()
    job.apply(killer("worker", location, options) if dies else None)
    job.check()
    job.copy(here / "checkpoint")
    job.check(COPY)
    ns.compact(session, location, NAME, full=True, storage_options=options)
    job.check()
    assert ns.verify(session, location, NAME, storage_options=options).row_count == len(job.model)
    session.stop()
    with (
        neve.open(location, storage_options=options, read_only=True) as lake,
        lake.table(NAME) as table,
    ):
        rows_left = {row["id"]: (row["v"], row["text"]) for row in table.scan().to_pylist()}
    assert rows_left == job.model
    print("rows", len(rows_left))


if __name__ == "__main__":
    main(*sys.argv[1:])
