"""The workloads of the Spark pipeline: neve beside what Spark does with plain Parquet.

Where rows are merged, delta-rs and PyIceberg take part too, without Spark; beside them, neve's
embedded engine makes the same changes to the same table. Ratios are by CPU time,
because Java and Python workers share the machine's cores. The design limits what a job may cost in
times of what another one costs; a target is that limit turned round:

    scan with a tenth of dead rows   at most 1.25 of a scan of plain Parquet     target 0.8
    upsert of 1 %                    at most 0.5 of Spark's copy-on-write        target 2
    compaction                       at most 0.25 of Spark's row_number plan     target 4
    DataFrame of 1,000 files         at most half a second of wall time
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

import neve
from benchmarks.harness import (
    FIXED_TIME,
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Shows,
    Stopwatch,
    Trial,
    Workload,
)
from benchmarks.result_file import Pace
from benchmarks.spark_bench import NAME, ROW_BYTES, SparkBench, timed
from benchmarks.spark_peers import DELTA, LEFT_OUT, PYICEBERG, PYICEBERG_UPSERT, Merging, SparkPeer
from neve import spark as ns

SPARK_ROWS: Final = 5_000_000
SPARK_QUICK_ROWS: Final = 200_000
SPARK_GROWTH_FACTOR: Final = 4
SPARK_WITH_PEERS: Final = frozenset({"spark_upsert_1", "spark_upsert_10", "spark_merge"})

_NEVE: Final = "neve"
_EMBEDDED: Final = "neve without Spark"
_PLAIN: Final = "plain Parquet"
_NATIVE: Final = "Spark, plain Parquet"
_BY_CPU: Final = "CPU counts Java, the driver and the Python workers."
_PLANNING_SECONDS: Final = 0.5
_ROUNDS_MAX: Final = 3
_ONLY_ASKED: Final = neve.TableOptions(background=False)
"""Nobody else compacts while the clock runs."""


def build_scan(bench: SparkBench) -> Workload:
    """Aggregate every column, of clean files and of files with dead rows."""
    bench.prepare()
    rows = bench.scale.rows
    replaced = -(-rows // 10)

    scanned = partial(_scanned, rows)
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
            Ratio(of=clean, to=_PLAIN, by=Pace.CPU),
            Ratio(of=dead, to=_PLAIN, by=Pace.CPU, target=1 / 1.25),
        ],
        parameters={"rows": rows},
        notes=[
            _BY_CPU,
            "Target: with dead rows, at most 1.25 times the CPU time of plain Parquet.",
        ],
        uses_disk=False,
    )


def _scanned(rows: int, frame_of: Callable[[], DataFrame], stamps: int) -> Trial:
    """Group rows and aggregate every column."""

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
                # Brought here: Spark does not read the columns of what nobody looks at.
                .collect()
            )
        answer = sum(each["n"] for each in found), sum(each["stamps"] for each in found)
        return _outcome(rows, answer, (rows, stamps))

    return trial


def build_bucket_scan(bench: SparkBench) -> Workload:
    """Aggregate every column of a table in a bucket, through Python and through Java."""
    bench.prepare()
    rows = bench.scale.rows
    stamps = rows + -(-rows // 10)
    python, java = f"{_NEVE}, through Python", f"{_NEVE}, through S3A"
    ways = {python: False, **({java: True} if bench.has_s3a else {})}
    for native in ways.values():
        bench.read_bucket(native=native).count()
    return Workload(
        name="spark_scan_bucket",
        sentence="The same over a table in a bucket, on this machine, with 10 % dead rows.",
        unit="rows",
        candidates=[
            Candidate(
                name=name,
                kind=Kind.NEVE,
                trial=_scanned(rows, partial(bench.read_bucket, native=native), stamps),
            )
            for name, native in ways.items()
        ],
        ratios=[Ratio(of=python, to=java, by=Pace.CPU)] if bench.has_s3a else [],
        parameters={"rows": rows},
        notes=[
            f"{_BY_CPU} Here it counts SeaweedFS as well.",
            "Both ways apply the same vectors; `make interop` fetches what S3A needs."
            if bench.has_s3a
            else "S3A did not take part: `make interop` fetches what it needs from Maven.",
        ],
        uses_disk=False,
    )


def build_load(bench: SparkBench) -> Workload:
    """Write the first rows of a table, sorted by key."""
    bench.prepare()
    rows, expected = bench.scale.rows, bench.base_answer()

    def by_job(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = directory / "lake"
        bench.make_table(place)
        with timed(stopwatch):
            ns.load(bench.read(bench.plain), place, NAME)
        return _outcome(rows, bench.answer_of_lake(place), expected)

    def native(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = directory / "plain"
        with timed(stopwatch):
            frame = bench.read(bench.plain).repartitionByRange(8, "id")
            frame.sortWithinPartitions("id").write.parquet(str(place))
        return _outcome(rows, bench.answer_of_files(place), expected)

    return Workload(
        name="spark_load",
        sentence="Write all rows, sorted by key.",
        unit="rows",
        candidates=_neve_and_native(by_job, native),
        ratios=[Ratio(of=_NEVE, to=_NATIVE, by=Pace.CPU)],
        parameters={"rows": rows},
        notes=[_BY_CPU],
        rounds_max=_ROUNDS_MAX,
    )


def build_upsert_1(bench: SparkBench) -> Workload:
    """Replace one row in a hundred."""
    return _build_upsert(bench, percent=1)


def build_upsert_10(bench: SparkBench) -> Workload:
    """Replace one row in ten."""
    return _build_upsert(bench, percent=10)


def _build_upsert(bench: SparkBench, *, percent: int) -> Workload:
    bench.prepare()
    keys = bench.changed_keys(percent)
    merging = Merging(
        base=bench.plain,
        changes=bench.changes(percent),
        changed_rows=len(keys),
        row_bytes=ROW_BYTES,
        expected=bench.answer_after(keys),
    )

    def upsert(place: Path) -> None:
        ns.upsert(bench.read(merging.changes), place, NAME)

    def copied(base: DataFrame, newer: DataFrame) -> DataFrame:
        kept = base.join(sf.broadcast(newer.select("id")), "id", "left_anti")
        return kept.unionByName(newer)

    is_small = percent == 1
    few = "Target: at most half the CPU time of Spark's copy-on-write."
    many = (
        "PyIceberg's upsert takes part at 1 % only: it compares matched rows one by one in Python, "
        "and would need about a minute of CPU time for half a million of them."
    )
    return _merging_workload(
        bench,
        merging,
        name=f"spark_upsert_{percent}",
        sentence=f"Replace {percent} % of the rows of a table, spread over all of it.",
        write=upsert,
        rewritten=copied,
        target=1 / 0.5 if is_small else None,
        peers=(DELTA, PYICEBERG, *((PYICEBERG_UPSERT,) if is_small else ())),
        notes=[
            "Spark's plan is an anti join with the changed keys, broadcast, and a union.",
            few if is_small else many,
        ],
    )


def build_merge(bench: SparkBench) -> Workload:
    """Update matched rows and insert the others."""
    bench.prepare()
    keys = bench.merged_keys()
    merging = Merging(
        base=bench.plain,
        changes=bench.merged(),
        changed_rows=len(keys),
        row_bytes=ROW_BYTES,
        expected=bench.answer_after(keys),
    )

    def merge(place: Path) -> None:
        ns.merge(bench.read(merging.changes), place, NAME)

    def joined(base: DataFrame, newer: DataFrame) -> DataFrame:
        old, new = base.alias("b"), newer.alias("n")
        both = old.join(new, sf.col("b.id") == sf.col("n.id"), "full_outer")
        return both.select(
            *(
                sf.coalesce(sf.col(f"n.{name}"), sf.col(f"b.{name}")).alias(name)
                for name in base.columns
            )
        )

    return _merging_workload(
        bench,
        merging,
        name="spark_merge",
        sentence="Merge a tenth of the rows, half of them new.",
        write=merge,
        rewritten=joined,
        peers=(DELTA, PYICEBERG),
        notes=["Spark's plan is a full outer join."],
    )


def build_compaction(bench: SparkBench) -> Workload:
    """Rewrite eight overlapping runs, keeping the newest row of each key."""
    bench.prepare()
    expected = bench.runs_answer()
    rows = sum(1 for _ in bench.runs.iterdir()) * (bench.scale.rows // 5)

    def by_job(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = bench.put_back(bench.runs_lake)
        with timed(stopwatch):
            ns.compact(bench.session, place, NAME, full=True)
        return _outcome(rows, bench.answer_of_lake(place), expected)

    def native(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = directory / "plain"
        with timed(stopwatch):
            newest_first = Window.partitionBy("id").orderBy(sf.desc("stamp"))
            frame = bench.read(bench.runs).repartitionByRange(8, "id")
            frame = frame.withColumn("_n", sf.row_number().over(newest_first)).where("_n = 1")
            frame.drop("_n").sortWithinPartitions("id").write.parquet(str(place))
        return _outcome(rows, bench.answer_of_files(place), expected)

    return Workload(
        name="spark_compaction",
        sentence="Rewrite eight overlapping runs into one, the newest row of each key.",
        unit="rows",
        candidates=_neve_and_native(by_job, native),
        ratios=[Ratio(of=_NEVE, to=_NATIVE, by=Pace.CPU, target=1 / 0.25)],
        parameters={"rows": rows},
        notes=[
            _BY_CPU,
            "Spark's plan is row_number over a shuffle by key range; its files are sorted too.",
            "Target: at most a quarter of the CPU time of Spark's plan.",
        ],
        rounds_max=_ROUNDS_MAX,
    )


def build_planning(bench: SparkBench) -> Workload:
    """Make the DataFrame of a table of many files."""

    def planned(files: int) -> Trial:
        def trial(_directory: Path, stopwatch: Stopwatch) -> Outcome:
            place = bench.lake_of_files(files)
            with timed(stopwatch):
                frame = bench.read_lake(place)
            return _outcome(1, [len(frame.inputFiles())], [files])

        return trial

    for files in bench.scale.planned_files:
        bench.read_lake(bench.lake_of_files(files))
    names = {files: f"{_NEVE}, {files:,} files" for files in bench.scale.planned_files}
    few, many = bench.scale.planned_files
    return Workload(
        name="spark_planning",
        sentence="Make the DataFrame of a table: read the manifest, name its files.",
        unit="plans",
        candidates=[
            Candidate(name=name, kind=Kind.NEVE, trial=planned(files))
            for files, name in names.items()
        ],
        ratios=[
            Ratio(of=names[few], to=FIXED_TIME, seconds=_PLANNING_SECONDS),
            Ratio(of=names[many], to=names[few], by=Pace.CPU),
        ],
        parameters={"files": f"{few:,} and {many:,}"},
        notes=[
            _BY_CPU,
            f"Target: a table of 1,000 files is planned within {_PLANNING_SECONDS:g} s.",
        ],
        shows=Shows.SECONDS,
        uses_disk=False,
    )


def build_memory(bench: SparkBench) -> Workload:
    """Look at the driver's memory after an upsert and a compaction."""
    bench.prepare()

    def trial(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = bench.put_back(bench.lake)
        with timed(stopwatch):
            ns.upsert(bench.read(bench.changes(10)), place, NAME)
            ns.compact(bench.session, place, NAME, full=True)
        megabytes = bench.driver_megabytes()
        expected = bench.answer_after(bench.changed_keys(10))
        outcome = _outcome(bench.scale.rows, bench.answer_of_lake(place), expected)
        return replace(outcome, facts={Pace.MEGABYTES: megabytes})

    return Workload(
        name="spark_memory",
        sentence="Memory of the driver, Python and Java, after an upsert and a compaction.",
        unit="rows",
        candidates=[Candidate(name=_NEVE, kind=Kind.NEVE, trial=trial)],
        parameters={"rows": bench.scale.rows},
        notes=["On one machine, the driver's Java is the one that works as well: up to 4 GB."],
        shows=Shows.MEGABYTES,
        rounds_max=1,
    )


SPARK_WORKLOADS: Final[Mapping[str, Callable[[SparkBench], Workload]]] = {
    "spark_scan": build_scan,
    "spark_scan_bucket": build_bucket_scan,
    "spark_load": build_load,
    "spark_upsert_1": build_upsert_1,
    "spark_upsert_10": build_upsert_10,
    "spark_merge": build_merge,
    "spark_compaction": build_compaction,
    "spark_planning": build_planning,
    "spark_memory": build_memory,
}


def _merging_workload(
    bench: SparkBench,
    merging: Merging,
    *,
    name: str,
    sentence: str,
    write: Callable[[Path], None],
    rewritten: Callable[[DataFrame, DataFrame], DataFrame],
    peers: Sequence[SparkPeer],
    notes: Sequence[str],
    target: float | None = None,
) -> Workload:
    """Merge changes: neve with `write`, Spark by writing what it makes of base and changes."""

    def by_job(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = bench.put_back(bench.lake)
        with timed(stopwatch):
            write(place)
        return _outcome(merging.changed_rows, bench.answer_of_lake(place), merging.expected)

    def native(directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = directory / "plain"
        with timed(stopwatch):
            frame = rewritten(bench.read(merging.base), bench.read(merging.changes))
            frame.write.parquet(str(place))
        return _outcome(merging.changed_rows, bench.answer_of_files(place), merging.expected)

    def embedded(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        place = bench.put_back(bench.lake)
        with stopwatch, neve.open(place) as lake:
            table = lake.table(NAME, options=_ONLY_ASKED)
            table.upsert(pq.read_table(merging.changes))
            table.flush()
        return _outcome(merging.changed_rows, bench.answer_of_lake(place), merging.expected)

    others = bench.peers.candidates(merging, *peers)
    return Workload(
        name=name,
        sentence=sentence,
        unit="rows",
        candidates=[
            *_neve_and_native(by_job, native),
            Candidate(name=_EMBEDDED, kind=Kind.NEVE, trial=embedded, sync="commit"),
            *others,
        ],
        ratios=[
            Ratio(of=_NEVE, to=_NATIVE, by=Pace.CPU, target=target),
            *(
                Ratio(of=mine, to=peer.name, by=Pace.CPU)
                for mine in (_NEVE, _EMBEDDED)
                for peer in others
            ),
        ],
        parameters={"rows": merging.changed_rows, "table_rows": bench.scale.rows},
        notes=[
            _BY_CPU,
            *notes,
            "Without Spark, neve's embedded engine upserts the changes as one batch, and flushes.",
            "delta-rs and PyIceberg work without Spark, in one process, and rewrite whole files."
            if others
            else LEFT_OUT,
        ],
        rounds_max=_ROUNDS_MAX,
        release=bench.peers.close,
    )


def _neve_and_native(by_job: Trial, native: Trial) -> Sequence[Candidate]:
    return (
        Candidate(name=_NEVE, kind=Kind.NEVE, trial=by_job, sync="commit"),
        Candidate(name=_NATIVE, kind=Kind.PEER, trial=native, sync="none"),
    )


def _outcome(rows: int, answer: object, expected: object) -> Outcome:
    return Outcome(
        rows=rows, calls=1, logical_bytes=rows * ROW_BYTES, answer=answer, expected=expected
    )
