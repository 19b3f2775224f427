"""The workloads of the Spark pipeline: neve beside what Spark does with plain Parquet.

Ratios by CPU are the ones to look at: the machine's cores are shared by Java and Python workers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from benchmarks.harness import Candidate, Kind, Outcome, Ratio, Shows, Stopwatch, Trial, Workload
from benchmarks.result_file import Pace
from benchmarks.spark_bench import NAME, ROW_BYTES, SparkBench, timed
from neve import spark as ns

SPARK_ROWS: Final = 5_000_000
SPARK_QUICK_ROWS: Final = 200_000
SPARK_GROWTH_FACTOR: Final = 4

_NEVE: Final = "neve"
_PLAIN: Final = "plain Parquet"
_NATIVE: Final = "Spark, plain Parquet"
_BY_CPU: Final = "CPU counts Java, the driver and the Python workers."


def build_scan(bench: SparkBench) -> Workload:
    """Aggregate every column, of clean files and of files with dead rows."""
    bench.prepare()
    rows = bench.scale.rows
    replaced = -(-rows // 10)

    def scanned(frame_of: Callable[[], DataFrame], stamps: int) -> Trial:
        def trial(_directory: Path, stopwatch: Stopwatch) -> Outcome:
            with timed(stopwatch):
                found = (
                    frame_of()
                    .groupBy("city")
                    .agg(
                        sf.count("*").alias("n"),
                        sf.sum("stamp").alias("stamps"),
                        sf.sum("amount"),
                        sf.sum("weight"),
                        sf.max("name"),
                        sf.max("id"),
                    )
                    .agg(sf.sum("n"), sf.sum("stamps"))
                    .first()
                )
            assert found is not None
            return _outcome(rows, tuple(found), (rows, stamps))

        return trial

    clean, dead = f"{_NEVE}, clean", f"{_NEVE}, 10 % dead"
    return Workload(
        name="spark_scan",
        sentence="Group all rows by one column and aggregate every other.",
        unit="rows",
        candidates=[
            Candidate(
                name=clean,
                kind=Kind.NEVE,
                trial=scanned(partial(bench.read_lake, bench.lake), rows),
            ),
            Candidate(
                name=dead,
                kind=Kind.NEVE,
                trial=scanned(partial(bench.read_lake, bench.updated), rows + replaced),
            ),
            Candidate(
                name=_PLAIN,
                kind=Kind.LIMIT,
                trial=scanned(partial(bench.read, bench.plain), rows),
            ),
        ],
        ratios=[
            Ratio(of=clean, to=_PLAIN, target=0.75),
            Ratio(of=dead, to=_PLAIN, target=0.6),
        ],
        parameters={"rows": rows},
        notes=[_BY_CPU],
        uses_disk=False,
    )


def build_load(bench: SparkBench) -> Workload:
    """Write the first rows of a table, sorted by key."""
    bench.prepare()
    rows = bench.scale.rows

    def neve(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = directory / "lake"
        bench.make_table(place)
        with timed(stopwatch):
            ns.load(bench.read(bench.plain), place, NAME)
        return _outcome(rows, bench.answer_of(place), (rows, rows))

    def native(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = directory / "plain"
        with timed(stopwatch):
            frame = bench.read(bench.plain).repartitionByRange(8, "id")
            frame.sortWithinPartitions("id").write.parquet(str(place))
        return _outcome(rows, _answer(bench.read(place)), (rows, rows))

    return _against_native("spark_load", "Write all rows, sorted by key.", rows, neve, native)


def _build_upsert(bench: SparkBench, *, percent: int) -> Workload:
    bench.prepare()
    step = 100 // percent
    rows = -(-bench.scale.rows // step)
    expected = bench.scale.rows, bench.scale.rows + rows

    def changes() -> DataFrame:
        return bench.read(bench.changes).where(sf.col("id") % step == 0)

    def neve(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = bench.copy_of(bench.lake, directory / "lake")
        with timed(stopwatch):
            ns.upsert(changes(), place, NAME)
        return _outcome(rows, bench.answer_of(place), expected)

    def native(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = directory / "plain"
        with timed(stopwatch):
            base, newer = bench.read(bench.plain), changes()
            kept = base.join(sf.broadcast(newer.select("id")), "id", "left_anti")
            kept.unionByName(newer).write.parquet(str(place))
        return _outcome(rows, _answer(bench.read(place)), expected)

    return _against_native(
        f"spark_upsert_{percent}",
        f"Replace {percent} % of the rows of a table, spread over all of it.",
        rows,
        neve,
        native,
    )


def build_upsert_1(bench: SparkBench) -> Workload:
    """Replace one row in a hundred."""
    return _build_upsert(bench, percent=1)


def build_upsert_10(bench: SparkBench) -> Workload:
    """Replace one row in ten."""
    return _build_upsert(bench, percent=10)


def build_merge(bench: SparkBench) -> Workload:
    """Update matched rows and insert the others."""
    bench.prepare()
    base_rows = bench.scale.rows
    rows = -(-base_rows // 10)

    def changes() -> DataFrame:
        """Give rows of which every second is new to the table."""
        moved = sf.when(sf.col("id") % 20 == 0, sf.col("id") + base_rows * 2)
        return bench.read(bench.changes).withColumn("id", moved.otherwise(sf.col("id")))

    inserted = -(-base_rows // 20)
    expected = base_rows + inserted, base_rows + (rows - inserted) + 2 * inserted

    def neve(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = bench.copy_of(bench.lake, directory / "lake")
        with timed(stopwatch):
            ns.merge(changes(), place, NAME)
        return _outcome(rows, bench.answer_of(place), expected)

    def native(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = directory / "plain"
        with timed(stopwatch):
            base = bench.read(bench.plain).alias("b")
            newer = changes().alias("n")
            names = base.columns
            joined = base.join(newer, sf.col("b.id") == sf.col("n.id"), "full_outer")
            joined.select(
                *(
                    sf.coalesce(sf.col(f"n.{name}"), sf.col(f"b.{name}")).alias(name)
                    for name in names
                )
            ).write.parquet(str(place))
        return _outcome(rows, _answer(bench.read(place)), expected)

    return _against_native(
        "spark_merge", "Merge a tenth of the rows, half of them new.", rows, neve, native
    )


def build_compaction(bench: SparkBench) -> Workload:
    """Rewrite eight overlapping runs, keeping the newest row of each key."""
    bench.prepare()
    expected = bench.answer_of(bench.runs_lake)
    rows = 8 * (bench.scale.rows // 5)

    def neve(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = bench.copy_of(bench.runs_lake, directory / "lake")
        with timed(stopwatch):
            ns.compact(bench.session, place, NAME, full=True)
        return _outcome(rows, bench.answer_of(place), tuple(expected))

    def native(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = directory / "plain"
        with timed(stopwatch):
            newest_first = Window.partitionBy("id").orderBy(sf.desc("stamp"))
            frame = bench.read(bench.runs).repartitionByRange(8, "id")
            frame = frame.withColumn("_n", sf.row_number().over(newest_first)).where("_n = 1")
            frame.drop("_n").sortWithinPartitions("id").write.parquet(str(place))
        return _outcome(rows, _answer(bench.read(place)), tuple(expected))

    return _against_native(
        "spark_compaction",
        "Rewrite eight overlapping runs into one, the newest row of each key.",
        rows,
        neve,
        native,
        notes=["Spark's plan is row_number over a shuffle by key range."],
    )


def build_planning(bench: SparkBench) -> Workload:
    """Make the DataFrame of a table of many files."""

    def planned(files: int) -> Trial:
        def trial(_directory: Path, stopwatch: Stopwatch) -> Outcome:
            place = bench.lake_of_files(files)
            with timed(stopwatch):
                frame = bench.read_lake(place)
            return _outcome(files, [len(frame.inputFiles())], [files])

        return trial

    for files in bench.scale.planned_files:
        bench.read_lake(bench.lake_of_files(files)).count()
    names = {files: f"{_NEVE}, {files:,} files" for files in bench.scale.planned_files}
    few, many = bench.scale.planned_files
    return Workload(
        name="spark_planning",
        sentence="Make the DataFrame of a table: read the manifest, name its files.",
        unit="files",
        candidates=[
            Candidate(name=name, kind=Kind.NEVE, trial=planned(files))
            for files, name in names.items()
        ],
        ratios=[Ratio(of=names[many], to=names[few])],
        notes=[_BY_CPU],
        shows=Shows.SECONDS,
        uses_disk=False,
    )


def build_memory(bench: SparkBench) -> Workload:
    """Look at the driver's memory after an upsert and a compaction."""
    bench.prepare()

    def trial(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = bench.copy_of(bench.lake, directory / "lake")
        with timed(stopwatch):
            ns.upsert(bench.read(bench.changes), place, NAME)
            ns.compact(bench.session, place, NAME, full=True)
        rows = bench.scale.rows
        expected = rows, rows + -(-rows // 10)
        outcome = _outcome(rows, bench.answer_of(place), expected)
        return Outcome(
            rows=outcome.rows,
            calls=outcome.calls,
            logical_bytes=outcome.logical_bytes,
            answer=outcome.answer,
            expected=outcome.expected,
            facts={Pace.MEGABYTES: bench.driver_megabytes()},
        )

    return Workload(
        name="spark_memory",
        sentence="Memory of the driver, Python and Java, after an upsert and a compaction.",
        unit="rows",
        candidates=[Candidate(name=_NEVE, kind=Kind.NEVE, trial=trial)],
        parameters={"rows": bench.scale.rows},
        shows=Shows.MEGABYTES,
        rounds_max=1,
    )


SPARK_WORKLOADS: Final[Mapping[str, Callable[[SparkBench], Workload]]] = {
    "spark_scan": build_scan,
    "spark_load": build_load,
    "spark_upsert_1": build_upsert_1,
    "spark_upsert_10": build_upsert_10,
    "spark_merge": build_merge,
    "spark_compaction": build_compaction,
    "spark_planning": build_planning,
    "spark_memory": build_memory,
}


def _against_native(
    name: str,
    sentence: str,
    rows: int,
    neve: Trial,
    native: Trial,
    *,
    notes: Sequence[str] = (),
) -> Workload:
    return Workload(
        name=name,
        sentence=sentence,
        unit="rows",
        candidates=[
            Candidate(name=_NEVE, kind=Kind.NEVE, trial=neve, sync="commit"),
            Candidate(name=_NATIVE, kind=Kind.PEER, trial=native, sync="none"),
        ],
        ratios=[Ratio(of=_NEVE, to=_NATIVE)],
        parameters={"rows": rows},
        notes=[_BY_CPU, *notes],
        rounds_max=3,
    )


def _outcome(rows: int, answer: object, expected: object) -> Outcome:
    return Outcome(
        rows=rows, calls=1, logical_bytes=rows * ROW_BYTES, answer=answer, expected=expected
    )


def _answer(frame: DataFrame) -> tuple[int, int]:
    """Give the number of rows and the sum of their stamps."""
    found = frame.agg(sf.count("*"), sf.sum("stamp")).first()
    assert found is not None
    return int(found[0]), int(found[1])
