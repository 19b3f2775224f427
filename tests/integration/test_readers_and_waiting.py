"""A lake that is only read, a writer that waits for another, and rows that flush by themselves."""

import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

import neve
from neve.errors import Fenced, InvalidArgument, NotFound
from neve.observability.events import EventKind, LifecycleEvent

SCHEMA = {"id": "long", "v": "long"}


def test_a_lake_that_is_only_read_changes_nothing(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.t", schema=SCHEMA, primary_key="id")
        table.put({"id": 1, "v": 1})
        with neve.open(tmp_path, read_only=True) as reader:
            assert "read_only" in repr(reader)
            with reader.table("a.t") as seen:
                assert seen.get(1) == {"id": 1, "v": 1}
                with pytest.raises(InvalidArgument, match="reading only"):
                    seen.put({"id": 2, "v": 2})
            for change in (
                lambda: reader.create_table("a.u", schema=SCHEMA, primary_key="id"),
                lambda: reader.drop_table("a.t"),
                lambda: reader.rename_table("a.t", "a.v"),
                lambda: reader.create_namespace("b"),
                lambda: reader.drop_namespace("a"),
                lambda: reader.bulk("a.t"),
                lambda: reader.load_table("a.t").set_properties({"a": "b"}),
                lambda: reader.load_table("a.t").update_sort_order(["id"]),
                reader.recover,
            ):
                with pytest.raises(InvalidArgument, match="reading only"):
                    change()
        assert lake.list_tables() == ["a.t"]


def test_a_missing_lake_is_not_made_by_a_reader(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        neve.open(tmp_path / "none", read_only=True)

    assert not (tmp_path / "none").exists()


def test_a_writer_waits_for_the_one_before_it(tmp_path: Path) -> None:
    script = (
        "import sys, neve\n"
        "lake = neve.open(sys.argv[1])\n"
        "table = lake.table('a.t')\n"
        "table.put({'id': 1, 'v': 1})\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "lake.close()\n"
    )
    with neve.open(tmp_path) as lake:
        lake.create_table("a.t", schema=SCHEMA, primary_key="id").close()
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdout is not None
            assert other.stdin is not None
            assert other.stdout.readline() == "ready\n"
            with pytest.raises(Fenced):
                lake.table("a.t", wait_seconds=0.05)
            other.stdin.write("\n")
            other.stdin.flush()

            with lake.table("a.t", wait_seconds=60) as table:
                assert table.get(1) == {"id": 1, "v": 1}


@pytest.mark.parametrize("seconds", [-1, "1", None, True, float("nan"), float("inf")])
def test_a_time_that_cannot_be_waited_is_refused(tmp_path: Path, seconds: object) -> None:
    with neve.open(tmp_path) as lake:
        lake.create_table("a.t", schema=SCHEMA, primary_key="id")
        with pytest.raises(InvalidArgument, match="wait_seconds"):
            lake.table("a.t", wait_seconds=seconds)  # type: ignore[arg-type]


def test_rows_reach_other_engines_without_a_call_of_flush(tmp_path: Path) -> None:
    flushed = Event()
    options = neve.TableOptions(flush_seconds=0.2)

    def hear(happened: LifecycleEvent) -> None:
        if happened.kind is EventKind.FLUSHED:
            flushed.set()

    with neve.open(tmp_path, listener=hear) as lake:
        table = lake.create_table("a.t", schema=SCHEMA, primary_key="id", options=options)
        version = table.version
        table.put({"id": 1, "v": 1})

        assert flushed.wait(30)
        table.refresh()
        assert table.version > version


def test_closing_flushes_where_the_option_says_so(tmp_path: Path) -> None:
    for on_close in (False, True):
        name = f"a.t{on_close}"
        with neve.open(tmp_path) as lake:
            options = neve.TableOptions(flush_on_close=on_close, background=False)
            table = lake.create_table(name, schema=SCHEMA, primary_key="id", options=options)
            table.put({"id": 1, "v": 1})
        with neve.open(tmp_path, read_only=True) as lake:
            committed = lake.load_table(name)
            assert committed.version == 1 + on_close
            if on_close:
                assert committed.iceberg_metadata().endswith(".metadata.json")
            else:
                with pytest.raises(NotFound, match="has not been published"):
                    committed.iceberg_metadata()


@pytest.mark.parametrize("seconds", [0, -1, "1", True, float("inf")])
def test_a_time_within_which_nothing_can_be_flushed_is_refused(seconds: object) -> None:
    with pytest.raises(InvalidArgument, match="flush_seconds"):
        neve.TableOptions(flush_seconds=seconds)  # type: ignore[arg-type]
