from dataclasses import replace
from random import Random
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pytest

from neve.errors import Corruption, Unavailable
from neve.keys import merge
from neve.keys.encoding import KeyEncoder
from neve.model.data_file import DataFile
from tests.unit.compaction.rewrite_bench import ListSink, RewriteBench

ENCODERS = {
    "one byte": KeyEncoder([pa.bool_()], ["id"]),
    "four bytes": KeyEncoder([pa.int32()], ["id"]),
    "eight bytes": KeyEncoder([pa.int64()], ["id"]),
    "twelve bytes": KeyEncoder([pa.int64(), pa.int32()], ["id", "part"]),
    "text": KeyEncoder([pa.string()], ["id"]),
}


class Stop(BaseException):
    """Ends a rewrite from outside."""


def rows_of(encoder: KeyEncoder, numbers: list[int]) -> pa.Table:
    """Return rows with one key per number, in the order of keys, and the number beside it."""
    rows = pa.table({"number": pa.array(numbers, pa.int64())})
    kind = encoder.types[0]
    if kind == pa.string():
        ids: list[object] = [f"key-{number:06}" * (1 + number % 3) for number in numbers]
    elif kind == pa.bool_():
        ids = [number > 0 for number in numbers]
    else:
        ids = [number - 500 for number in numbers]
    rows = rows.append_column("id", pa.array(ids, kind))
    return rows.append_column("part", pa.array([0] * len(numbers), pa.int32()))


def test_rows_of_several_files_come_in_the_order_of_their_keys() -> None:
    bench = RewriteBench(group_rows=2)
    bench.add_ids(1, 4, 7, 10, 13)
    bench.add_ids(2, 5, 8)
    bench.add_ids(3, 6, 9, 11, 12, 14)

    assert bench.texts() == [
        "1@0", "2@1", "3@2", "4@0", "5@1", "6@2", "7@0",
        "8@1", "9@2", "10@0", "11@2", "12@2", "13@0", "14@2",
    ]  # fmt: skip


def test_marked_rows_are_left_behind() -> None:
    bench = RewriteBench(group_rows=2)
    bench.add_ids(1, 2, 3, 4, 5, dead=[0, 3])
    bench.add_ids(1, 4, 6)

    assert bench.texts() == ["1@1", "2@0", "3@0", "4@1", "5@0", "6@1"]


def test_a_group_without_live_rows_is_not_read() -> None:
    bench = RewriteBench(group_rows=2)
    file = bench.add_ids(1, 2, 3, 4, 5, 6, dead=[2, 3])

    assert bench.texts() == ["1@0", "2@0", "5@0", "6@0"]
    assert bench.read_logs[file.path] == [(0, 2), (4, 6)]


def test_inputs_without_a_live_row_give_no_file() -> None:
    bench = RewriteBench()
    bench.add_ids(1, 2, dead=[0, 1])

    assert bench.execute() == ()
    assert bench.sink.rows == []
    assert not bench.sink.is_aborted


def test_keys_given_to_the_sink_are_those_of_its_rows() -> None:
    bench = RewriteBench(group_rows=3)
    bench.add_ids(*range(0, 20, 2))
    bench.add_ids(*range(1, 20, 2), dead=[3])

    bench.execute()

    for rows, keys in zip(bench.sink.rows, bench.sink.keys, strict=True):
        assert keys.to_pylist() == bench.encode_keys(rows).to_pylist()


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("seed", range(5), ids=lambda seed: f"seed{seed}")
def test_any_kind_of_key_is_merged_as_sorting_everything_would(name: str, seed: int) -> None:
    rng = Random(seed)
    encoder = ENCODERS[name]
    bench = RewriteBench(encoder=encoder, group_rows=rng.choice([1, 3, 16]))
    numbers = list(range(2 if name == "one byte" else 300))
    rng.shuffle(numbers)
    count = rng.randint(1, 6)
    live: list[int] = []
    for part in range(count):
        mine = sorted(numbers[part::count])
        if mine:
            dead = rng.sample(range(len(mine)), len(mine) // 4)
            bench.add(rows_of(encoder, mine), dead=dead)
            live.extend(number for at, number in enumerate(mine) if at not in dead)

    written = pa.concat_tables(bench.execute())

    keys = bench.encode_keys(rows_of(encoder, live)).to_pylist()
    expected = [number for _, number in sorted(zip(keys, live, strict=True))]
    assert written["number"].to_pylist() == expected
    assert sum(bench.progress) == len(live)


def test_files_apart_are_read_one_after_another_and_never_sorted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> NoReturn:
        raise AssertionError("nothing is to be sorted")

    monkeypatch.setattr(merge, "merged_order", refuse)
    monkeypatch.setattr(merge, "DEFAULT_SIZE", merge.WindowSize(rows=1))
    bench = RewriteBench(group_rows=2)
    bench.add_ids(10, 11, 12)
    bench.add_ids(1, 2, 3)
    handed_on: list[int] = []
    bench.check_cancelled = lambda: handed_on.append(sum(bench.progress))

    assert bench.texts() == ["1@1", "2@1", "3@1", "10@0", "11@0", "12@0"]
    assert handed_on == [0, 2, 3, 5], "a group is read when the one before it was handed on"


def test_only_one_group_of_each_run_is_held_beyond_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merge, "DEFAULT_SIZE", merge.WindowSize(rows=1, bytes=1))
    held: list[int] = []
    bench = RewriteBench(group_rows=10)
    for start in range(4):
        bench.add_ids(*range(start, 400, 4))
    bench.check_cancelled = lambda: held.append(
        sum(stop - first for log in bench.read_logs.values() for first, stop in log)
        - sum(bench.progress)
    )

    bench.execute()

    assert max(held) <= 4 * 10


def test_a_window_too_large_to_sort_at_once_is_cut_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def ids_with(limit: int) -> tuple[list[str], int]:
        monkeypatch.setattr(merge, "SORTED_BYTES_MAX", limit)
        bench = RewriteBench(group_rows=64)
        bench.add_ids(*range(0, 99, 3))
        bench.add_ids(*range(1, 99, 3))
        bench.add_ids(*range(2, 99, 3))
        return bench.texts(), len(bench.sink.rows)

    whole, appends = ids_with(1 << 20)
    cut, more_appends = ids_with(1)

    assert cut == whole
    assert more_appends > appends


def test_rows_are_projected_before_their_keys_are_encoded() -> None:
    def rename(rows: pa.Table, file: DataFile) -> pa.Table:
        return rows.rename_columns(["id", "text"]) if file.level == 0 else rows

    bench = RewriteBench(project=rename)
    bench.add_ids(2, 4)
    bench.add_ids(1, 3, level=1)
    first = bench.files[0].path
    bench.tables[first] = bench.tables[first].rename_columns(["old_id", "old_text"])

    assert bench.texts() == ["1@1", "2@0", "3@1", "4@0"]


class TestWhatGoesWrong:
    """The sink is aborted, and the error says why."""

    def bench(self) -> RewriteBench:
        bench = RewriteBench(group_rows=2)
        bench.add_ids(1, 4, 7, 10)
        bench.add_ids(2, 5, 8)
        return bench

    def test_a_key_with_two_live_rows_is_corruption(self) -> None:
        bench = self.bench()
        bench.add_ids(3, 5)

        with pytest.raises(Corruption, match=r"two live rows have the key 8000000000000005"):
            bench.execute()
        assert bench.sink.is_aborted

    def test_a_key_with_two_live_rows_is_found_at_the_edge_of_groups(self) -> None:
        bench = RewriteBench(group_rows=1)
        bench.add_ids(1, 2)
        bench.add_ids(2, 3)

        with pytest.raises(Corruption, match="two live rows"):
            bench.execute()

    def test_two_live_rows_of_a_long_key_are_named_too(self) -> None:
        encoder = ENCODERS["text"]
        bench = RewriteBench(encoder=encoder)
        for numbers in ([3, 6], [6, 9]):
            bench.add(rows_of(encoder, numbers))

        with pytest.raises(Corruption, match=b"key-000006".hex()):
            bench.execute()

    @pytest.mark.parametrize("name", ["eight bytes", "text"])
    @pytest.mark.parametrize("group_rows", [1, 8], ids=["across groups", "in one group"])
    def test_rows_out_of_order_are_corruption_naming_the_file(
        self, name: str, group_rows: int
    ) -> None:
        encoder = ENCODERS[name]
        bench = RewriteBench(encoder=encoder, group_rows=group_rows)
        file = bench.add(rows_of(encoder, [3, 6, 9, 12]))
        bench.tables[file.path] = rows_of(encoder, [3, 9, 6, 12])

        with pytest.raises(Corruption, match="not in key order") as caught:
            bench.execute()
        assert caught.value.path == file.path
        assert bench.sink.is_aborted

    @pytest.mark.parametrize("ids", [(0, 5), (3, 8)], ids=["below", "above"])
    def test_rows_outside_the_bounds_of_their_file_are_corruption(
        self, ids: tuple[int, int]
    ) -> None:
        bench = RewriteBench()
        file = bench.add_ids(3, 5)
        bench.tables[file.path] = pa.table({"id": pa.array(ids, pa.int64()), "text": ["x", "y"]})

        with pytest.raises(Corruption, match="outside the key bounds") as caught:
            bench.execute()
        assert caught.value.path == file.path

    def test_a_vector_that_marks_other_rows_than_the_manifest_says_is_corruption(self) -> None:
        bench = self.bench()
        bench.masks[bench.files[0].path] = np.array([True, False, True, True])

        with pytest.raises(Corruption, match="6 live rows were read, the manifest has 7"):
            bench.execute()
        assert bench.sink.is_aborted

    def test_a_vector_of_another_length_than_its_file_is_corruption(self) -> None:
        bench = self.bench()
        bench.masks[bench.files[0].path] = np.ones(3, dtype=np.bool_)

        with pytest.raises(Corruption, match="covers 3 rows, the file has 4"):
            bench.execute()

    def test_a_source_that_fails_aborts_the_sink(self) -> None:
        bench = self.bench()
        bench.files[0] = replace(bench.files[0], path="data/gone.parquet")

        with pytest.raises(KeyError, match="gone"):
            bench.execute()
        assert bench.sink.is_aborted

    @pytest.mark.parametrize("step", ["append", "finish"])
    def test_a_sink_that_fails_is_aborted(self, step: str) -> None:
        def fail(*_: object) -> NoReturn:
            raise Unavailable("disk full")

        bench = self.bench()
        setattr(bench.sink, step, fail)

        with pytest.raises(Unavailable, match="disk full"):
            bench.execute()
        assert bench.sink.is_aborted

    def test_a_sink_that_cannot_be_aborted_does_not_hide_why(self) -> None:
        class Stuck(ListSink):
            def finish(self) -> NoReturn:
                raise Unavailable("disk full")

            def abort(self) -> None:
                raise Unavailable("cannot delete")

        bench = self.bench()
        bench.sink = Stuck()

        with pytest.raises(Unavailable, match="disk full") as caught:
            bench.execute()
        assert "cannot delete" in caught.value.__notes__[0]

    def test_a_cancelled_rewrite_stops_before_the_next_group(self) -> None:
        bench = self.bench()

        def cancel() -> None:
            if sum(map(len, bench.read_logs.values())) == 3:
                raise Stop

        bench.check_cancelled = cancel

        with pytest.raises(Stop):
            bench.execute()
        assert sum(map(len, bench.read_logs.values())) == 3
        assert bench.sink.is_aborted


def test_rows_take_their_lineage_with_them_where_it_is_kept() -> None:
    bench = RewriteBench(keeps_lineage=True)
    bench.add_ids(1, 4, 6, dead=[1])
    bench.add_ids(2, 3, 5)
    stored = pa.table(
        {
            "id": pa.array([7, 8, 9], pa.int64()),
            "text": ["7@2", "8@2", "9@2"],
            "_row_id": pa.array([3, None, 5], pa.int64()),
            "_last_updated_sequence_number": pa.array([2, 3, None], pa.int64()),
        }
    )
    bench.add(stored)
    bench.files = [
        replace(file, first_row_id=first, data_sequence=sequence)
        for file, first, sequence in zip(bench.files, (10, 20, 90), (4, 6, 9), strict=True)
    ]

    (rows,) = bench.execute()

    assert rows.column_names == ["id", "text", "_row_id", "_last_updated_sequence_number"]
    assert rows.drop_columns("text").to_pandas().to_numpy().tolist() == [
        [1, 10, 4],
        [2, 20, 6],
        [3, 21, 6],
        [5, 22, 6],
        [6, 12, 4],
        [7, 3, 2],
        [8, 91, 3],
        [9, 5, 9],
    ]
