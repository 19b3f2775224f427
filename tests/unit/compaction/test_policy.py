"""The policy, case by case; `tests/cases/compaction` has the drawings."""

import pyarrow as pa
import pytest

from neve.compaction.plan import CompactionReason, LevelOptions
from neve.compaction.policy import full_plan, move_plan, pick, pick_all
from neve.model.partition_spec import PartitionIdentity, PartitionSpec
from neve.model.schema import TableSchema
from tests.unit.compaction.builders import MIB, data_file, version_of
from tests.unit.compaction.level_drawing import CASES, Case, drawn, read_cases

FILES = sorted(path.name for path in CASES.glob("*.txt"))


def answers(case: Case) -> list[str]:
    version, options, busy = case.version(), case.level_options(), case.busy_paths()
    match case.question:
        case "pick":
            return [drawn(pick(version, options, busy))]
        case "all":
            return [drawn(plan) for plan in pick_all(version, options, busy)]
        case _:
            return [drawn(plan) for plan in full_plan(version, options)] or ["none"]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=f"{name}: {case.title}") for name in FILES for case in read_cases(name)],
)
def test_levels_give_the_plan_that_is_drawn(case: Case) -> None:
    assert answers(case) == case.plans


def test_every_kind_of_plan_is_drawn() -> None:
    drawings = {
        plan.split()[0] for name in FILES for case in read_cases(name) for plan in case.plans
    }

    assert drawings == {"none", "level0", "size", "garbage", "small", "full"}


def test_a_plan_names_the_version_and_exactly_its_files() -> None:
    first = data_file("a", keys=(b"a", b"c"))
    second = data_file("b", keys=(b"b", b"d"))
    below = data_file("x", keys=(b"c", b"f"), level=1)
    version = version_of([first, second, below], number=12)

    plan = pick(version, LevelOptions(level0_files=2))

    assert plan is not None
    assert plan.base == 12
    assert plan.inputs == (first, second, below)
    assert plan.paths == {first.path, second.path, below.path}
    assert (plan.key_min, plan.key_max) == (b"a", b"f")
    assert plan.input_bytes == 30 * MIB
    assert plan.live_count == 300
    assert (plan.spec_id, plan.partition) == (0, ())


def test_partitions_of_two_specs_are_two_partitions() -> None:
    files = [data_file(f"f{spec}", spec_id=spec) for spec in (0, 1)]

    plans = pick_all(version_of(files), LevelOptions(level0_files=1))

    assert [plan.spec_id for plan in plans] == [0, 1]


def test_files_keep_the_size_that_the_option_says() -> None:
    plan = pick(version_of([data_file("a")]), LevelOptions(level0_files=1, file_bytes=3 * MIB))

    assert plan is not None
    assert plan.file_bytes == 3 * MIB


def test_joined_files_are_not_parted_again_by_the_size_of_files() -> None:
    files = [data_file(name, keys=(name.encode(), name.encode()), level=1) for name in "ab"]
    options = LevelOptions()

    plan = pick(version_of(files), options)

    assert plan is not None
    assert plan.file_bytes > options.file_bytes


def test_a_table_without_files_needs_nothing() -> None:
    assert pick(version_of([]), LevelOptions()) is None
    assert pick_all(version_of([]), LevelOptions()) == []


def test_files_below_the_last_level_stay_where_they_are() -> None:
    deep = data_file("a", level=9, file_bytes=1 << 40)

    assert pick(version_of([deep]), LevelOptions()) is None


OLD, NEW = (7).to_bytes(4, "little"), (7).to_bytes(8, "little")


def widened() -> PartitionIdentity:
    """Return partitions by a column that was an int and is a long."""
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "x": pa.int64()}
    schema = TableSchema.from_arrow(pa.schema(columns), primary_key=["id"])
    return PartitionIdentity.of_definitions([PartitionSpec.parse(["x"], schema)], [schema])


def test_files_of_before_a_column_was_widened_are_of_the_same_partition() -> None:
    young = data_file("a", keys=(b"a", b"c"), partition=NEW)
    below = data_file("x", keys=(b"b", b"d"), level=1, partition=OLD)
    version, options = version_of([young, below]), LevelOptions(level0_files=1)

    plan = pick(version, options, identity=widened())

    assert plan is not None
    assert set(plan.inputs) == {young, below}
    assert len(full_plan(version, options, identity=widened())) == 1


def test_files_of_one_level_that_overlap_since_a_column_was_widened_are_taken_as_level_0() -> None:
    old = data_file("old", keys=(b"a", b"f"), level=1, partition=OLD)
    new = data_file("new", keys=(b"e", b"k"), level=1, partition=NEW)
    apart = data_file("apart", keys=(b"m", b"p"), level=1, partition=OLD)
    version = version_of([old, new, apart])

    plan = pick(version, LevelOptions(level0_files=1), identity=widened())

    assert plan is not None
    assert (set(plan.inputs), plan.target_level) == ({old, new}, 1)


def test_garbage_of_a_file_that_overlaps_its_level_is_not_rewritten_into_it() -> None:
    old = data_file("old", keys=(b"a", b"f"), level=1, marked=90, partition=OLD)
    new = data_file("new", keys=(b"e", b"k"), level=1, partition=NEW)

    plan = pick(version_of([old, new]), LevelOptions(level0_files=9), identity=widened())

    assert plan is not None
    assert (plan.inputs, plan.target_level) == ((old,), 0)


def test_files_of_former_specs_move_to_the_current_one_into_level_0() -> None:
    stays = data_file("stays", level=2)
    former = [data_file(f"f{spec}", spec_id=spec, level=1) for spec in (1, 2)]

    (plan,) = move_plan(version_of([stays, *former], number=9), LevelOptions())

    assert plan.inputs == tuple(former)
    assert (plan.base, plan.target_level, plan.moves_to) == (9, 0, 0)
    assert plan.reason is CompactionReason.SPEC
    assert move_plan(version_of([stays]), LevelOptions()) == []


def test_a_move_reads_few_runs_and_no_more_bytes_than_a_job_may() -> None:
    files = [
        data_file(f"{partition}-{number}", spec_id=1, partition=partition, file_bytes=MIB)
        for partition in range(50)
        for number in range(partition % 5 + 1)
    ]

    by_runs = move_plan(version_of(files), LevelOptions())
    by_bytes = move_plan(version_of(files), LevelOptions(job_bytes_max=8 * MIB))

    for plans in (by_runs, by_bytes):
        moved = [file.path for plan in plans for file in plan.inputs]
        assert sorted(moved) == sorted(file.path for file in files)
    assert max(len(plan.runs()) for plan in by_runs) == 16
    assert len(by_runs) < 12
    assert all(plan.input_bytes <= 8 * MIB for plan in by_bytes)


def test_only_wanted_files_move() -> None:
    files = [data_file(name, spec_id=1, level=1) for name in ("a", "b")]

    (plan,) = move_plan(version_of(files), LevelOptions(), wanted={files[1].path})

    assert plan.inputs == (files[1],)
