"""`neve inspect manifest`: objects and whole stores, sound, damaged and foreign."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

import neve
from neve.catalog.catalog_table import CatalogTable
from neve.cli.main import cli
from neve.errors import NotPublished
from neve.manifest.leases import Leases
from neve.model.data_file import VectorRef
from neve.model.version import Operation, VersionEdit, VersionFacts
from neve.storage.clock import SystemClock, SystemIds
from neve.storage.local_store import LocalStore
from tests.unit.catalog.builders import a_file, a_table, an_append


def inspect(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["inspect", "manifest", *map(str, arguments)])


@pytest.fixture
def table(tmp_path: Path) -> CatalogTable:
    """Return a table with three versions, one of which marks rows."""
    table = a_table(neve.open(str(tmp_path)))
    table.commit([an_append(1, a_file("a"), a_file("b"))])
    vector = VectorRef(path="deletes/v.puffin", offset=4, length=40, cardinality=3)
    facts = VersionFacts(operation=Operation.DELETE, timestamp_ms=0, schema_id=0, spec_id=0)
    table.commit([VersionEdit(base=2, facts=facts, vectors={"data/a.parquet": vector})])
    return table


@pytest.fixture
def store(tmp_path: Path, table: CatalogTable) -> Path:
    """Return the directory of that table's version store."""
    return tmp_path / table.stored.paths.manifest


def segment(store: Path, number: int) -> Path:
    return store / "segments" / f"seg-{number:020}"


# One object


def test_a_head_is_one_line(store: Path) -> None:
    shown = inspect(store / "HEAD")

    assert shown.exit_code == 0
    title, line = shown.stdout.splitlines()
    assert title.startswith("HEAD  ")
    assert line.startswith("HEAD · segment 3 · checkpoint: none · transaction ")


def test_a_segment_shows_its_records_in_words(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = inspect(segment(store, 2))

    lines = shown.stdout.splitlines()
    assert lines[0].startswith("seg-00000000000000000002  ")
    assert lines[1].startswith("╭─ segment 2 · 2 records · transaction ")
    assert "put  version/00000000000000000002" in lines[2]
    assert lines[2].endswith("version 2 APPEND: 2 files added, 0 removed, 0 marked")
    assert "put  head" in lines[3]
    assert '{"current_version":2' in lines[3]
    assert lines[4] == "╰─"


def test_a_segment_is_one_json_document(store: Path) -> None:
    document = json.loads(inspect(segment(store, 3), "--json").stdout)

    assert document["kind"] == "segment"
    assert document["segment"] == 3
    (edit, head) = document["records"]
    assert edit["key"] == "version/00000000000000000003"
    assert edit["manifest"]["operation"] == "DELETE"
    assert edit["manifest"]["parent"] == 2
    assert edit["manifest"]["files"][0]["marked"] == 3
    assert head["document"]["current_version"] == 3


def test_a_checkpoint_shows_its_entries(store: Path, table: CatalogTable) -> None:
    table.stored.store.checkpoint()

    assert "HEAD · segment 3 · checkpoint: 3 · " in inspect(store / "HEAD").stdout
    shown = inspect(store / "checkpoints" / f"ckpt-{3:020}")

    assert "checkpoint of segment 3" in shown.stdout
    assert "version 3 DELETE in full: 2 files" in shown.stdout
    document = json.loads(
        inspect(store / "checkpoints" / f"ckpt-{3:020}", "--json", "--limit", "1").stdout
    )
    assert len(document["entries"]) == 1
    assert document["omitted_entries"] > 1
    assert [decided["segment"] for decided in document["recent"]] == [1, 2, 3]


def test_a_lease_and_a_version_are_shown(tmp_path: Path, store: Path, table: CatalogTable) -> None:
    leases = Leases(
        LocalStore(str(tmp_path)), table.stored.paths.manifest, clock=SystemClock(), ids=SystemIds()
    )
    held = leases.take(2, seconds=60)
    edit = table.stored.store.read().get("version/00000000000000000003")
    assert edit is not None
    (tmp_path / "edit.mrub").write_bytes(edit)

    assert (
        f"lease {held.lease_id} on version 2 until "
        in inspect(store / "leases" / held.lease_id).stdout
    )
    shown = inspect(tmp_path / "edit.mrub").stdout
    assert "version 3 DELETE: 0 files added, 0 removed, 1 marked" in shown
    assert "~ data/a.parquet · 3 rows marked" in shown


@pytest.mark.parametrize("flipped", [4, 5, 12, 40, -1])
def test_a_damaged_object_is_exit_code_five(store: Path, flipped: int) -> None:
    path = segment(store, 2)
    damaged = bytearray(path.read_bytes())
    damaged[flipped] ^= 1
    path.write_bytes(damaged)

    shown = inspect(path)

    assert shown.exit_code == 5
    assert shown.stdout == ""


def test_an_object_under_another_name_is_damage(store: Path) -> None:
    segment(store, 9).write_bytes(segment(store, 2).read_bytes())

    refused = inspect(segment(store, 9))

    assert refused.exit_code == 5
    assert "segment 2 is where 9 belongs" in refused.stderr


@pytest.mark.parametrize(
    ("payload", "looks"),
    [
        (b"PAR1....", "a Parquet file"),
        (b"hello world, this is text", "a text"),
        (b"\x00\x01\x02", ""),
        (b"NEV", ""),
    ],
    ids=range(4),
)
def test_a_foreign_file_is_refused_with_what_it_looks_like(
    tmp_path: Path, payload: bytes, looks: str
) -> None:
    (tmp_path / "file").write_bytes(payload)

    refused = inspect(tmp_path / "file")

    assert refused.exit_code == 2
    assert "is not an object of a manifest" in refused.stderr
    assert looks in refused.stderr


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    refused = inspect(tmp_path / "none")

    assert refused.exit_code == 2
    assert "there is no file" in refused.stderr


# A whole store


def test_a_store_is_drawn_with_its_chain(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    shown = inspect(store)

    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == f"{store}  0 checkpoints · 3 segments · 0 leases"
    assert lines[1].startswith("HEAD · segment 3 · checkpoint: none · transaction ")
    assert [line for line in lines if line.startswith("╭─ segment")][2].startswith("╭─ segment 3")
    assert lines[-1] == "✔ the chain is whole up to HEAD"


def test_a_store_with_a_checkpoint_and_foreign_files_is_whole(
    store: Path, table: CatalogTable
) -> None:
    stored = table.stored
    stored.store.checkpoint()
    stored.store.collect_once()
    (store / "notes.txt").write_text("mine")
    with pytest.raises(NotPublished):  # the table's files are invented
        table.update_sort_order(["id"])

    shown = inspect(store, "--strict")

    assert shown.exit_code == 0
    assert "1 checkpoint · 1 segment" in " ".join(shown.stdout.split())
    assert "? notes.txt: not an object of a store, skipped" in shown.stdout
    document = json.loads(inspect(store, "--json").stdout)
    assert document["kind"] == "store"
    assert document["head"]["checkpoint"] == 3
    assert [each["segment"] for each in document["checkpoints"]] == [3]
    assert [each["segment"] for each in document["segments"]] == [4]
    assert document["foreign"] == ["notes.txt"]
    assert document["problems"] == []


def test_a_damaged_segment_is_told_and_the_others_are_shown(store: Path) -> None:
    segment(store, 2).write_bytes(b"NEVE\x02damage")

    shown = inspect(store)

    assert shown.exit_code == 0
    lines = shown.stdout.splitlines()
    assert "✗ segment 2 · 11 bytes · damaged" in lines
    assert "╭─ segment 3" in shown.stdout
    assert [line for line in lines if "segment 2" in line][1:] == [
        "✗ segment 2: a manifest object of 11 bytes is cut off"
    ]
    assert json.loads(inspect(store, "--json").stdout)["problems"] == [
        "segment 2: a manifest object of 11 bytes is cut off"
    ]


def test_a_damaged_store_that_is_judged_strictly_is_exit_code_five(store: Path) -> None:
    segment(store, 2).write_bytes(b"NEVE\x02damage")

    judged = inspect(store, "--strict")

    assert judged.exit_code == 5
    assert judged.stdout == inspect(store).stdout
    assert judged.stderr == f"neve: the manifest store is damaged in {store}\n"


def test_a_damaged_last_segment_is_one_problem(store: Path) -> None:
    segment(store, 3).write_bytes(b"NEVE\x02damage")

    assert json.loads(inspect(store, "--json").stdout)["problems"] == [
        "segment 3: a manifest object of 11 bytes is cut off"
    ]


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_no_line_is_wider_than_the_page(
    tmp_path: Path,
    store: Path,
    table: CatalogTable,
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stored = table.stored
    leases = Leases(
        LocalStore(str(tmp_path)), stored.paths.manifest, clock=SystemClock(), ids=SystemIds()
    )
    leases.take(2, seconds=60)
    table.commit([an_append(3, a_file("long" * 40))])
    stored.store.checkpoint()
    stored.store.transact(lambda session: session.put("名" * 40, ("値" * 80).encode()))
    stored.store.transact(lambda session: session.delete("名" * 40))
    edit = stored.store.read().get("version/00000000000000000004")
    assert edit is not None
    (tmp_path / "edit.mrub").write_bytes(edit)
    (store / f"{'notes ' * 20}.txt").write_text("mine")
    segment(store, 6).write_bytes(b"NEVE\x02damage")

    for shown in (inspect(store), inspect(store / "HEAD"), inspect(tmp_path / "edit.mrub")):
        assert shown.exit_code == 0
        assert [line for line in shown.stdout.splitlines() if cell_len(line) > columns] == []


def test_a_narrow_page_loses_nothing_of_titles_and_verdicts(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(store, 2).unlink()
    wide = inspect(segment(store, 3)).stdout.splitlines()[1]

    monkeypatch.setenv("COLUMNS", "40")
    narrow = inspect(segment(store, 3)).stdout.splitlines()
    verdict = inspect(store).stdout.splitlines()

    title = [narrow[1]] + [line for line in narrow[2:] if line.startswith("│  ")]
    assert " ".join(line[3:] for line in title) == wide[3:]
    assert verdict[-1] == "✗ segment 2 is missing"


def test_a_missing_segment_and_a_missing_head_are_told(store: Path) -> None:
    segment(store, 2).unlink()
    assert "✗ segment 2 is missing" in inspect(store).stdout

    segment(store, 3).unlink()
    assert "✗ segment 2 is missing, which HEAD needs" in inspect(store).stdout

    (store / "HEAD").unlink()
    assert "✗ there is no HEAD" in inspect(store).stdout


def test_a_segment_of_another_store_breaks_the_chain(tmp_path: Path, store: Path) -> None:
    other = a_table(neve.open(str(tmp_path)), "shop.other")
    other.update_sort_order(["id"])
    other_store = tmp_path / other.stored.paths.manifest
    segment(store, 2).write_bytes(segment(other_store, 2).read_bytes())

    assert "✗ segment 2 does not follow the one before it" in inspect(store).stdout


def test_a_warehouse_is_told_which_stores_it_has(tmp_path: Path, store: Path) -> None:
    refused = inspect(tmp_path)

    assert refused.exit_code == 2
    assert "manifest/catalog, manifest/version/" in refused.stderr
    assert store.name in refused.stderr
    assert f"Name one: {tmp_path}/manifest/catalog" in refused.stderr


def test_an_unrelated_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()

    refused = inspect(tmp_path / "x")

    assert refused.exit_code == 2
    assert "is not a manifest store" in refused.stderr


def test_a_long_store_is_cut_off_at_the_limit(store: Path) -> None:
    shown = inspect(store, "--limit", "1")

    assert shown.stdout.count("│ ") == 1
    assert "more records: raise --limit" in shown.stdout


def test_control_characters_in_a_store_do_not_reach_the_terminal(
    store: Path, table: CatalogTable
) -> None:
    table.stored.store.transact(lambda session: session.put("\x1b[31mkey", b"\x1b[31mvalue"))

    shown = inspect(store)

    assert "\x1b" not in shown.stdout
    assert "\\x1b[31mkey" in shown.stdout
