"""Every rule of a Version broken once: refused with its number, and nothing is written."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Never

import pytest

from neve.errors import Corruption, InvalidArgument
from neve.manifest.invariants import (
    InvariantViolation,
    check_added,
    check_head,
    check_version,
)
from neve.manifest.sessions import WriteSession
from neve.manifest.table_head import HEAD_KEY, HeadChange, TableHead, state_key, version_key
from neve.manifest.version_codec import encode_edit, encode_version
from neve.model.data_file import DataFile, PartitionValue
from neve.model.version import Operation, Version, VersionEdit, apply_edit
from tests.unit.manifest.builders import (
    TableBench,
    data_file,
    edit_of,
    facts,
    first_head,
    new_table,
    path_of,
    renamed,
    vector_ref,
)


def table() -> TableBench:
    """Return a table at Version 2: `low` (keys a-c) and `high` (m-p) in level 1, `new` in 0."""
    bench = new_table()
    bench.commit(
        data_file("low", keys=(b"a", b"c"), level=1),
        data_file("high", keys=(b"m", b"p"), level=1, vector=vector_ref("1", marked=4)),
        data_file("new"),
    )
    return bench


VIOLATIONS: dict[str, tuple[str, VersionEdit]] = {
    "overlap with the file before": ("V1", edit_of(2, data_file("x", keys=(b"c", b"d"), level=1))),
    "overlap with the file behind": ("V1", edit_of(2, data_file("x", keys=(b"l", b"m"), level=1))),
    "a file inside another": ("V1", edit_of(2, data_file("x", keys=(b"n", b"n"), level=1))),
    "a file around others": ("V1", edit_of(2, data_file("x", keys=(b"", b"z"), level=1))),
    "two new files overlap": (
        "V1",
        edit_of(
            2,
            data_file("x", keys=(b"a", b"b"), level=2),
            data_file("y", keys=(b"b", b"c"), level=2),
        ),
    ),
    "no rows": ("V2", edit_of(2, data_file("x", rows=0))),
    "no bytes": ("V2", edit_of(2, replace(data_file("x"), file_bytes=0))),
    "keys the wrong way round": ("V2", edit_of(2, data_file("x", keys=(b"b", b"a")))),
    "sequences the wrong way round": (
        "V2",
        edit_of(2, replace(data_file("x"), sequence_min=2, sequence_max=1)),
    ),
    "a negative level": ("V2", edit_of(2, replace(data_file("x"), level=-1))),
    "more rows marked than there are": (
        "V3",
        edit_of(2, vectors={"new": vector_ref("2", marked=11)}),
    ),
    "a vector that shrinks": ("V3", edit_of(2, vectors={"high": vector_ref("2", marked=3)})),
    "a new file with too many marks": (
        "V3",
        edit_of(2, data_file("x", vector=vector_ref("2", marked=11))),
    ),
    "marked and removed": (
        "V4",
        edit_of(2, removed=("new",), vectors={"new": vector_ref("2", marked=1)}),
    ),
    "rows of a file that is not there": (
        "V4",
        edit_of(2, vectors={"x": vector_ref("2", marked=1)}),
    ),
    "data elsewhere": ("V5", edit_of(2, renamed(data_file("x"), "metadata/x.parquet"))),
    "data among the vectors": ("V5", edit_of(2, renamed(data_file("x"), "deletes/x.parquet"))),
    "a vector elsewhere": (
        "V5",
        edit_of(2, vectors={"new": replace(vector_ref("2", marked=1), path="data/2.puffin")}),
    ),
    "a new file's vector elsewhere": (
        "V5",
        edit_of(
            2, data_file("x", vector=replace(vector_ref("2", marked=1), path="index/2.puffin"))
        ),
    ),
    "row ids of an older file": ("V6", edit_of(2, data_file("x", first_row_id=29))),
    "row ids of a new file": (
        "V6",
        edit_of(2, data_file("x", first_row_id=100), data_file("y", first_row_id=109)),
    ),
    "row ids without end": ("V6", edit_of(2, data_file("x", first_row_id=(1 << 63) - 10))),
}


@pytest.mark.parametrize("what", VIOLATIONS)
def test_an_edit_that_breaks_a_rule_is_refused_and_nothing_is_written(what: str) -> None:
    rule, edit = VIOLATIONS[what]
    bench = table()
    before = bench.segment()

    with pytest.raises(InvariantViolation, match=rf"^MANIFEST-{rule}:"):
        bench.versions.apply_version_edits([edit])

    assert bench.segment() == before
    assert bench.another().versions.snapshot_latest().version.number == 2


def test_the_first_good_edits_of_a_call_are_not_written_when_a_later_one_breaks_a_rule() -> None:
    bench = table()
    before = bench.segment()

    with pytest.raises(InvariantViolation, match="V2"):
        bench.versions.apply_version_edits([edit_of(2, "x"), edit_of(3, data_file("y", rows=0))])

    assert bench.segment() == before
    assert bench.versions.snapshot_latest().version.number == 2


@pytest.mark.parametrize("path", ["data/../x", "/data/x", "data//x", "data/x\0", "data\\x"])
def test_a_path_that_could_leave_the_table_is_refused(path: str) -> None:
    bench = table()
    before = bench.segment()

    with pytest.raises((InvariantViolation, InvalidArgument)):
        bench.versions.apply_version_edits([edit_of(2, renamed(data_file("x"), path))])

    assert bench.segment() == before


def test_an_edit_that_removes_what_is_not_there_or_adds_what_is_there_is_refused() -> None:
    bench = table()
    before = bench.segment()

    with pytest.raises(Corruption, match="not there"):
        bench.versions.apply_version_edits([edit_of(2, removed=("x",))])
    with pytest.raises(Corruption, match="twice"):
        bench.versions.apply_version_edits([edit_of(2, data_file("new"))])

    assert bench.segment() == before


BACKWARDS: dict[str, HeadChange] = {
    "flushed_sequence": HeadChange(flushed_sequence=9),
    "last_sequence": HeadChange(last_sequence=19),
    "next_log_number": HeadChange(next_log_number=4),
    "wal_floor": HeadChange(wal_floor=2),
}


@pytest.mark.parametrize("name", BACKWARDS)
def test_a_head_that_would_go_back_is_refused_and_nothing_is_written(name: str) -> None:
    bench = table()
    bench.versions.apply_version_edits(
        [edit_of(2, "x")],
        HeadChange(flushed_sequence=10, last_sequence=20, next_log_number=5, wal_floor=3),
    )
    before = bench.segment()

    with pytest.raises(InvariantViolation, match=f"V7: {name}"):
        bench.versions.apply_version_edits([edit_of(3, "y")], BACKWARDS[name])

    assert bench.segment() == before


ADVANCED = replace(
    first_head(),
    current_version=5,
    oldest_version=3,
    writer_epoch=2,
    flushed_sequence=7,
    last_sequence=7,
)


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("current_version", replace(ADVANCED, current_version=4)),
        ("oldest_version", replace(ADVANCED, oldest_version=2)),
        ("writer_epoch", replace(ADVANCED, writer_epoch=1)),
        ("flushed_sequence", replace(ADVANCED, flushed_sequence=6)),
        ("last_sequence", replace(ADVANCED, last_sequence=6, flushed_sequence=6)),
    ],
)
def test_no_counter_of_a_head_goes_back(name: str, after: TableHead) -> None:
    with pytest.raises(InvariantViolation, match=f"V7: (flushed|{name})"):
        check_head(ADVANCED, after)
    check_head(ADVANCED, ADVANCED)


def test_a_floor_above_the_logs_given_out_is_refused() -> None:
    bench = table()
    before = bench.segment()

    with pytest.raises(InvariantViolation, match="V8"):
        bench.versions.apply_version_edits([edit_of(2, "x")], HeadChange(wal_floor=2))

    assert bench.segment() == before


def test_more_flushed_than_given_out_is_refused() -> None:
    with pytest.raises(InvariantViolation, match="V8"):
        check_head(None, replace(first_head(), flushed_sequence=2, last_sequence=1))


def test_a_first_version_that_breaks_a_rule_makes_no_table() -> None:
    bench = TableBench()
    edit = edit_of(0, data_file("x", rows=0), operation=Operation.CREATE)

    with pytest.raises(InvariantViolation, match="V2"):
        bench.versions.create(first_head(), schema="{}", spec="{}", edit=edit)

    assert bench.segment() == 0


def test_a_version_of_another_table_is_refused() -> None:
    bench = table()
    stored = bench.versions.edit_in(bench.store.read(), 2)
    foreign = encode_edit(replace(stored, facts=replace(stored.facts, table_uuid="another")))
    bench.store.transact(lambda session: session.put(version_key(2), foreign))

    with pytest.raises(InvariantViolation, match="V11"):
        bench.another().versions.snapshot_latest()


def test_a_version_that_names_no_table_is_read_as_one_of_the_first_release() -> None:
    bench = table()
    stored = bench.versions.edit_in(bench.store.read(), 2)
    older = encode_edit(replace(stored, facts=replace(stored.facts, table_uuid="")))
    bench.store.transact(lambda session: session.put(version_key(2), older))

    assert bench.another().versions.snapshot_latest().version.number == 2


ALLOWED: dict[str, Sequence[DataFile]] = {
    "neighbours": [data_file("x", keys=(b"d", b"l"), level=1)],
    "the same keys in another level": [data_file("x", keys=(b"a", b"c"), level=2)],
    "the same keys in level 0": [data_file("x", keys=(b"a", b"c")), data_file("y")],
    "the same keys in another partition": [
        replace(
            data_file("x", keys=(b"a", b"c"), level=1),
            partition=(PartitionValue(field_id=1, value=b"1"),),
        )
    ],
    "row ids behind all others": [data_file("x", first_row_id=30)],
    "every row marked": [data_file("x", vector=vector_ref("2", marked=10))],
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_breaks_no_rule_is_committed_and_survives_a_checkpoint(what: str) -> None:
    bench = table()

    bench.versions.apply_version_edits([edit_of(2, *ALLOWED[what])])
    bench.checkpoint_and_collect()

    found = bench.another().versions.snapshot_latest().version
    assert found == bench.versions.snapshot_latest().version
    assert len(found.files) == 3 + len(ALLOWED[what])


@pytest.mark.parametrize(
    ("rule", "files"),
    [
        ("V1", [data_file("x", level=1), data_file("y", level=1)]),
        ("V2", [data_file("x", rows=0)]),
        ("V3", [data_file("x", vector=vector_ref("2", marked=11))]),
        ("V5", [renamed(data_file("x"), "index/x.parquet")]),
        ("V6", [data_file("x", first_row_id=0), data_file("y", first_row_id=9)]),
        ("V9", [replace(data_file("x"), schema_id=9)]),
        ("V9", [replace(data_file("x"), spec_id=9)]),
    ],
)
def test_a_stored_version_that_breaks_a_rule_is_not_read(rule: str, files: list[DataFile]) -> None:
    bench = table()
    version = Version(number=2, parent=1, facts=facts(), files={file.path: file for file in files})
    if rule != "V9":
        with pytest.raises(InvariantViolation, match=rule):
            check_version(version)
    bench.store.transact(lambda session: session.put(state_key(2), encode_version(version)))

    with pytest.raises(InvariantViolation, match=rf"^MANIFEST-{rule}:"):
        bench.another().versions.snapshot_latest()


@pytest.mark.parametrize(
    ("rule", "edit"),
    [
        ("V1", edit_of(2, data_file("x", keys=(b"b", b"d"), level=1, first_row_id=30))),
        ("V2", edit_of(2, data_file("x", rows=0, first_row_id=30))),
        ("V3", edit_of(2, vectors={"high": vector_ref("2", marked=3)})),
        ("V5", edit_of(2, renamed(data_file("x", first_row_id=30), "index/x.parquet"))),
        ("V6", edit_of(2, data_file("x", first_row_id=5))),
        ("V9", edit_of(2, replace(data_file("x", first_row_id=30), schema_id=9))),
        ("V9", edit_of(2, replace(data_file("x", first_row_id=30), spec_id=9))),
        ("V9", replace(edit_of(2), facts=facts(schema_id=9))),
    ],
)
def test_a_stored_edit_that_breaks_a_rule_is_not_read(rule: str, edit: VersionEdit) -> None:
    bench = table()
    head = replace(bench.versions.head(), current_version=3)

    def plant(session: WriteSession) -> None:
        session.put(version_key(3), encode_edit(edit))
        session.put(HEAD_KEY, head.encode())

    bench.store.transact(plant)

    with pytest.raises(InvariantViolation, match=rf"^MANIFEST-{rule}:"):
        bench.another().versions.snapshot_latest()
    with pytest.raises(InvariantViolation, match=rf"^MANIFEST-{rule}:"):
        bench.another().versions.list_versions()


@pytest.mark.parametrize("change", [{"flushed_sequence": 9}, {"wal_floor": 9}])
def test_a_stored_head_that_breaks_a_rule_is_not_read(change: dict[str, int]) -> None:
    bench = table()
    head = replace(bench.versions.head(), **change)  # type: ignore[arg-type]  # all are numbers
    bench.store.transact(lambda session: session.put(HEAD_KEY, head.encode()))

    with pytest.raises(InvariantViolation, match=r"^MANIFEST-V8:"):
        bench.another().versions.head()


def test_the_files_of_a_version_keep_the_order_in_which_they_came() -> None:
    bench = table()

    files = bench.versions.snapshot_latest().version.files

    assert list(files) == [path_of("low"), path_of("high"), path_of("new")]
    assert [file.first_row_id for file in files.values()] == [0, 10, 20]


def test_a_schema_or_spec_that_is_not_the_tables_is_not_committed() -> None:
    bench = table()
    before = bench.segment()
    edit, file = edit_of(2), data_file("x")

    for wrong in (
        replace(edit, facts=replace(edit.facts, schema_id=9)),
        replace(edit, facts=replace(edit.facts, spec_id=9)),
        edit_of(2, replace(file, schema_id=9)),
        edit_of(2, replace(file, spec_id=9)),
    ):
        with pytest.raises(InvariantViolation, match="V9"):
            bench.versions.apply_version_edits([wrong])

    assert bench.segment() == before


class CountedFiles(dict[str, DataFile]):
    """Files of a Version that count how often one is looked at."""

    looks = 0

    def __getitem__(self, path: str) -> DataFile:
        self.looks += 1
        return super().__getitem__(path)

    def values(self) -> Never:
        raise AssertionError("every file was looked at")


def test_a_new_file_is_checked_against_its_neighbours_in_a_level_of_any_size() -> None:
    many = [data_file(f"f{n}", keys=(b"%06d" % n, b"%06d" % n), level=1) for n in range(2_000)]
    before = apply_edit(None, edit_of(0, *many))
    edit = edit_of(
        1,
        data_file("new", keys=(b"000500", b"000501"), level=1, first_row_id=50_000),
        removed=["f500", "f501"],
    )
    after = apply_edit(before, edit)
    counted = CountedFiles(after.files)
    seen = replace(after, files=counted, _order=(counted, after.key_order))

    check_added(seen, edit)

    assert counted.looks == 2


@pytest.mark.parametrize("keys", [(b"1", b"3"), (b"4", b"6"), (b"2", b"5"), (b"0", b"9")])
def test_a_file_that_reaches_into_a_neighbour_is_not_committed(keys: tuple[bytes, bytes]) -> None:
    bench = new_table()
    bench.commit(
        data_file("low", keys=(b"0", b"1"), level=1),
        data_file("mid", keys=(b"2", b"3"), level=1),
        data_file("high", keys=(b"6", b"9"), level=1),
    )

    with pytest.raises(InvariantViolation, match="V1"):
        bench.commit(
            data_file("new", keys=keys, level=1), removed=["mid"] if keys[0] == b"4" else []
        )

    assert bench.commit(data_file("new", keys=(b"4", b"5"), level=1)) == 3
