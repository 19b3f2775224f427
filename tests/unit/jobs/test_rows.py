"""What a task of a job does with its rows: the last of each key, sorted, divided by partition."""

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neve
from neve.jobs.merge import BulkMerge, ClauseKind, MergeClause, MergePiece, choices_of
from neve.jobs.rows import BulkRows, KeyedRows, keyed_rows, last_of_each, sorted_by_key
from neve.jobs.run import JobBase
from neve.keys.encoding import KeyEncoder
from neve.model.schema import normalize_batch
from tests.unit.engine.tables import a_catalog, a_table
from tests.unit.jobs.bulk_jobs import Jobs

ENCODER = KeyEncoder([pa.int64()], ["id"])


def batch(rows: Sequence[tuple[int, int | None]]) -> pa.RecordBatch:
    ids, values = zip(*rows, strict=True) if rows else ((), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(ids, pa.int64()), pa.array(values, pa.int64())], names=["id", "v"]
    )


def keyed(rows: Sequence[tuple[int, int | None]]) -> KeyedRows:
    return keyed_rows(batch(rows), ENCODER)


@given(
    rows=st.lists(st.tuples(st.integers(0, 6), st.none() | st.integers(0, 9))),
    cuts=st.lists(st.integers(0, 30), max_size=3),
)
def test_sorted_rows_of_any_batches_give_the_last_of_each_key_by_the_column(
    rows: list[tuple[int, int | None]], cuts: list[int]
) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    pieces = [keyed(rows[a:b]) for a, b in pairwise(places)]
    found = sorted_by_key(pieces, order_by=["v"])
    if found is None:
        assert not rows
        return
    ordered, keys = found
    half = ordered.num_rows // 2
    parts = [
        (ordered.slice(0, half), keys.slice(0, half)),
        (ordered.slice(half), keys.slice(half)),
    ]
    given_back = [
        (row["id"], row["v"])
        for piece, _ in last_of_each(parts, ENCODER, refuses_more=False)
        for row in piece.to_pylist()
    ]
    newest = dict(sorted(rows, key=lambda row: (row[0], -1 if row[1] is None else row[1])))
    assert given_back == sorted(newest.items())


def test_several_rows_of_a_key_are_refused_also_where_they_are_in_two_batches() -> None:
    pieces = [keyed([(1, 1), (2, 1)]), keyed([(2, 2), (3, 1), (3, 2)])]
    with pytest.raises(neve.InvalidArgument, match="such as 2, 3"):
        list(last_of_each(pieces, ENCODER, refuses_more=True))


def test_rows_that_come_by_partition_end_each_file_before_the_next_begins() -> None:
    with a_catalog() as lake:
        table = a_table(lake, partition_by=["text"])
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        base = JobBase(jobs.parts, run.run, run.base)
        task = BulkRows(base, by_partition=True)
        for text, numbers in (("a", [5, 9]), ("b", [1, 7]), ("c", [2])):
            rows = normalize_batch(
                pa.RecordBatch.from_pydict(
                    {"id": numbers, "v": numbers, "text": [text] * len(numbers)}
                ),
                base.schema,
            )
            task.upsert(rows, base.context.encoder.encode_arrays([rows.column("id")]))
            assert len(task._open) == 1
        work = task.finish()
        assert len(work.files) == 3
        assert {file.path.split("/")[2] for file in work.files} == {"text=a", "text=b", "text=c"}
        assert all(file.path.startswith(run.run.data_prefix) for file in work.files)
        jobs.committer.commit(run, work)
        assert table.refresh().scan("text = 'b'").count() == 2


def test_a_task_that_fails_deletes_what_it_wrote() -> None:
    with a_catalog() as lake:
        table = a_table(lake, partition_by=["text"])
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        base = JobBase(jobs.parts, run.run, run.base)
        task = BulkRows(base, by_partition=True)
        for text in "ab":
            rows = normalize_batch(
                pa.RecordBatch.from_pydict({"id": [1], "v": [1], "text": [text]}), base.schema
            )
            task.upsert(rows, base.context.encoder.encode_arrays([rows.column("id")]))
        stored = table._open.stored
        prefix = f"{stored.paths.root}/{run.run.data_prefix}"
        assert list(stored.objects.list(prefix))
        task.abort()
        assert not list(stored.objects.list(prefix))


def test_rows_are_merged_by_what_their_keys_have_and_those_left_alone_are_remembered() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert([{"id": n, "v": n, "text": "old"} for n in range(4)])
        table.flush()
        jobs = Jobs(table._open.engine.parts)
        run = jobs.committer.begin()
        base = JobBase(jobs.parts, run.run, run.base)
        task = BulkRows(base, by_partition=False)
        clauses = (
            MergeClause(kind=ClauseKind.UPDATE, columns=("v",)),
            MergeClause(kind=ClauseKind.DELETE),
            MergeClause(kind=ClauseKind.INSERT, columns=("v",)),
        )
        ids = pa.array([0, 1, 2, 8, 9], pa.int64())
        values = pa.RecordBatch.from_arrays(
            [ids, pa.array([50] * 5, pa.int64())], names=["id", "v"]
        )
        BulkMerge(base, clauses, task, fit=normalize_batch).take(
            MergePiece(
                keys=base.context.encoder.encode_arrays([ids]),
                if_matched=choices_of(pa.array([0, 1, None, 0, 0])),
                if_unmatched=choices_of(pa.array([2, 2, 2, 2, None])),
                values=[values, None, values],
            )
        )
        work = task.finish()
        seen = [
            cast("int", base.context.encoder.decode(key)[0])
            for keys in work.seen_keys
            for key in keys.to_pylist()
            if isinstance(key, bytes)
        ]
        assert seen == [2, 9]
        jobs.committer.commit(run, work, decided=True)
        assert table.refresh().scan().to_arrow().sort_by("id").to_pylist() == [
            {"id": 0, "v": 50, "text": "old"},
            {"id": 2, "v": 2, "text": "old"},
            {"id": 3, "v": 3, "text": "old"},
            {"id": 8, "v": 50, "text": None},
        ]
