"""Commands that keep tables in order: flush, compact, expire, gc, verify, recover."""

import json
import os
import shutil
from pathlib import Path

import pytest

import neve
from neve.engine.table_options import TableOptions
from neve.errors import StorageFull, Unavailable
from neve.iceberg.metadata_folder import MetadataFolder
from tests.unit.cli.rows_lake import RowsLake


def with_versions(lake: RowsLake, count: int) -> RowsLake:
    """Return a table with so many flushes, each of the same key and one more."""
    lake.orders()
    lake.flushes([[{"id": 0}, {"id": number + 1}] for number in range(count)])
    return lake


def files_below(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_file() and path.name != "LOCK"}


# flush


def test_a_flush_makes_a_version_of_what_is_in_the_log() -> None:
    lake = RowsLake().orders((1, "ada", None))

    assert lake.ok("flush", "shop.orders") == "the current version of shop.orders is 2\n"
    assert lake.ok("flush", "shop.orders") == "the current version of shop.orders is still 2\n"
    assert lake.json("flush", "shop.orders") == {
        "table": "shop.orders",
        "version": 2,
        "is_new": False,
    }


def _take_no_metadata(monkeypatch: pytest.MonkeyPatch, *, kind: type[Unavailable]) -> None:
    def refuse(_folder: MetadataFolder, number: int, _payload: bytes) -> bool:
        raise kind("could not create the document: No space left on device", path=f"v{number}")

    monkeypatch.setattr(MetadataFolder, "create_document", refuse)


@pytest.mark.parametrize("command", ["flush", "compact", "import"])
def test_a_commit_that_is_not_published_ends_with_3_and_says_that_the_rows_are_safe(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake = RowsLake().orders((1, "ada", None))
    file = tmp_path / "rows.csv"
    file.write_text("id,customer\n2,bob\n")
    arguments = [command, "shop.orders", *([str(file)] if command == "import" else [])]
    _take_no_metadata(monkeypatch, kind=StorageFull)

    failed = lake.run(*arguments, "--json")

    assert failed.exit_code == 3
    error = json.loads(failed.stderr)["error"]
    assert (error["kind"], error["version"]) == ("NotPublished", 2)
    assert "version 2 is committed" in error["message"]
    assert "No space left on device" in error["message"]
    assert "`neve iceberg` publishes them" in error["hint"]
    monkeypatch.undo()
    assert len(lake.rows()) == 1 + (command == "import")
    assert lake.ok("iceberg", "shop.orders")


def test_expiring_on_a_full_disk_says_that_publishing_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = with_versions(RowsLake(), 3)
    _take_no_metadata(monkeypatch, kind=StorageFull)

    assert "the disk is full" in lake.ok("expire", "shop.orders", "--keep-last", "2")
    assert lake.json("expire", "shop.orders", "--keep-last", "1")["is_publishing_due"] is True
    monkeypatch.undo()
    assert lake.json("expire", "shop.orders", "--keep-last", "1")["is_publishing_due"] is False


@pytest.mark.parametrize("command", ["flush", "compact", "expire", "gc", "rollback"])
def test_what_writes_needs_the_lock(command: str) -> None:
    lake = RowsLake().orders((1, "ada", None))

    with neve.open(lake.location).table("shop.orders"):
        refused = lake.run(command, "shop.orders", *(["1"] if command == "rollback" else []))

    assert refused.exit_code == 4
    assert "the lock is held" in refused.stderr


# compact


def test_a_full_compaction_leaves_one_file_without_deleted_rows() -> None:
    lake = with_versions(RowsLake(), 3)

    compacted = lake.json("compact", "shop.orders", "--full")

    assert (compacted["files_before"], compacted["files"], compacted["rows"]) == (3, 1, 4)
    assert lake.json("describe", "shop.orders")["deleted_rows"] == 0
    assert len(lake.rows()) == 4


def test_a_compaction_tells_what_became_of_the_files() -> None:
    lake = with_versions(RowsLake(), 2)

    said = lake.ok("compact", "shop.orders", "--full")

    assert said.startswith("version 4: 1 file, ")
    assert "; before: 2 files, " in said


# expire and gc


def test_old_versions_expire_and_their_files_can_be_deleted(tmp_path: Path) -> None:
    lake = with_versions(RowsLake(str(tmp_path)), 3)
    lake.ok("compact", "shop.orders", "--full")
    before = files_below(tmp_path / "tables")

    expired = lake.json("expire", "shop.orders", "--keep-last", "1")
    dry = lake.json("gc", "shop.orders")
    untouched = files_below(tmp_path / "tables")
    told = lake.ok("gc", "shop.orders")
    run = lake.json("gc", "shop.orders", "--run")

    assert expired["expired_versions"] == [1, 2, 3, 4]
    assert expired["oldest_version"] == 5
    assert not dry["deleted"]
    assert dry["bytes"] > 0
    assert len([path for path in dry["files"] if path.startswith("data/")]) == 3
    # Logs of which every row is flushed go with the next opening, whatever it is for; what was
    # published of a Version goes with the Version.
    kept = {
        path.name for path in before if path.suffix != ".wal" and path.parent.name != "metadata"
    }
    assert kept <= {path.name for path in untouched}
    assert told.splitlines()[-1].endswith("can be deleted: `neve gc shop.orders --run`")
    assert run["deleted"]
    gone = {Path(path).name for path in dry["files"]}
    assert not gone & {path.name for path in files_below(tmp_path / "tables")}
    assert lake.ok("gc", "shop.orders", "--run") == "there is nothing to delete\n"
    assert len(lake.rows()) == 4


def test_tags_and_young_versions_stay() -> None:
    lake = with_versions(RowsLake(), 3)
    lake.ok("tag", "shop.orders", "kept", "--version", "2")

    assert lake.json("expire", "shop.orders", "--older-than", "1h")["expired_versions"] == []
    told = lake.ok("expire", "shop.orders", "--keep-last", "1")

    assert told.splitlines()[:2] == [
        "2 versions expired; versions from 4 on are kept",
        "also kept, for tags or readers: 2",
    ]
    assert len(lake.json("scan", "shop.orders", "--tag", "kept")["rows"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--keep-last", "0"], "keep_last=0"),
        (["--older-than", "soon"], "'soon' is not a time"),
        (["--older-than", "20240131120000"], "'20240131120000' is not a time"),
        (["--older-than", "9999-01-31T12:00:00+00:00"], "is in the future"),
    ],
    ids=["count", "time", "digits", "future"],
)
def test_what_cannot_expire_is_refused(arguments: list[str], said: str) -> None:
    refused = RowsLake().orders().run("expire", "shop.orders", *arguments)

    assert refused.exit_code == 2
    assert said in refused.stderr


def test_expire_and_describe_name_the_readers_that_hold_history(tmp_path: Path) -> None:
    lake = with_versions(RowsLake(str(tmp_path / "lake")), 4)
    with (
        neve.open(lake.location) as reader,
        reader.table("shop.orders", read_only=True) as table,
        table.at(version=2),
    ):
        (held,) = [each for each in table.leases() if each.version == 2]
        said = lake.json("expire", "shop.orders", "--keep-last", "1")
        described = lake.json("describe", "shop.orders")["leases"]
        words = lake.ok("expire", "shop.orders", "--keep-last", "1")
    lines = lake.ok("describe", "shop.orders")

    assert said["kept_versions"] == [2]
    (lease,) = said["leases"]
    assert lease["holder"] == held.holder
    assert f"process {os.getpid()} on " in held.holder
    assert (lease["first_version"], lease["last_version"]) == (2, 2)
    assert lease["since_ms"] <= lease["until_ms"]
    assert lease in described
    assert f"version 2 held by {held.holder} since " in words
    assert "version 2 held by" not in lines, "a lease that was given up is not shown"


# verify


def test_a_sound_table_is_said_to_be_sound_beside_its_writer() -> None:
    lake = with_versions(RowsLake(), 2)

    quiet = TableOptions(background=False)
    with neve.open(lake.location).table("shop.orders", options=quiet):
        told = lake.ok("verify", "shop.orders")
        document = lake.json("verify", "shop.orders")

    assert told.startswith("✔ version 3 is sound: 3 rows in 2 files, ")
    assert (document["is_sound"], document["problems"]) == (True, [])
    assert (document["rows"], document["files"], document["vectors"]) == (3, 2, 1)


def test_damage_is_told_and_ends_with_exit_code_five(tmp_path: Path) -> None:
    lake = with_versions(RowsLake(str(tmp_path)), 1)
    (path,) = tmp_path.rglob("*.parquet")
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)

    told = lake.run("verify", "shop.orders")
    document = lake.run("verify", "shop.orders", "--json")

    assert told.exit_code == document.exit_code == 5
    assert told.stdout.startswith("✗ ")
    assert "1 thing wrong with the table; first: " in told.stderr
    assert '"is_sound": false' in document.stdout
    assert path.name in document.stdout


def test_a_terminal_sees_how_far_long_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lake = with_versions(RowsLake(), 1)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")

    assert "reading bytes" in lake.run("verify", "shop.orders").stderr
    assert "compacting rows" in lake.run("compact", "shop.orders", "--full").stderr


# recover


def test_recovery_lists_tables_and_what_was_done() -> None:
    lake = RowsLake().orders()

    (table,) = lake.json("recover")["tables"]
    told = lake.ok("recover")

    assert (table["name"], table["outcome"]) == ("shop.orders", "nothing")
    assert told == f"{table['table_id']}  shop.orders  in order\n"


def test_recovery_deletes_files_that_a_reader_held_back() -> None:
    lake = with_versions(RowsLake(), 1)
    catalog = neve.open(lake.location)
    with catalog.table("shop.orders", read_only=True) as table, table.snapshot():
        held = lake.ok("drop", "shop.orders", "--purge")
        waiting = lake.json("recover")["tables"]

    done = lake.json("recover")["tables"]

    assert "`neve recover` deletes them" in held
    assert [each["outcome"] for each in waiting] == ["unpurged"]
    assert [each["outcome"] for each in done] == ["purged"]


def test_recovery_of_an_empty_warehouse_is_nothing() -> None:
    lake = RowsLake()
    neve.open(lake.location).close()

    assert lake.ok("recover") == "no tables\n"
    assert lake.json("recover") == {"tables": []}


def test_tables_that_cannot_be_settled_are_listed_beside_the_others(tmp_path: Path) -> None:
    lake = RowsLake(str(tmp_path)).orders()
    lake.ok("create", "shop.other", "id:long", "--key", "id")
    one, other = sorted((tmp_path / "manifest" / "version").iterdir())
    # The version store of one table in the place of another's: restored from the wrong copy.
    shutil.rmtree(one)
    shutil.copytree(other, one)

    told = lake.run("recover")
    document = lake.run("recover", "--json")

    assert told.exit_code == document.exit_code == 5
    assert "✗ " in told.stdout
    assert "belongs to another table" in told.stdout
    assert "in order" in told.stdout
    assert '"error"' in document.stdout
