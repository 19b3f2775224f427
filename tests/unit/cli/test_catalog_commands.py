"""Commands on the names and definitions of tables."""

import json
import re
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

import neve
from neve.catalog.lake import Lake
from neve.cli.main import cli
from neve.manifest.leases import Leases
from neve.model.row_rules import rule_texts
from neve.storage.clock import SystemClock, SystemIds
from tests.unit.catalog.builders import a_file, a_table, an_append
from tests.unit.cli.rows_lake import ORDERS, RowsLake


def run(*arguments: str, lake: str | None = None) -> Result:
    return CliRunner().invoke(cli, [*arguments, *(["--lake", lake] if lake is not None else [])])


@pytest.fixture
def lake() -> str:
    """Return a warehouse of this test alone."""
    return f"memory://{uuid4()}"


@pytest.fixture
def catalog(lake: str) -> Lake:
    """Return the catalog of the same warehouse."""
    return neve.open(lake)


# create


def test_a_table_is_made_as_it_is_written(lake: str) -> None:
    made = run(
        "create", "shop.orders", "id:long", "customer:string!", "amount:decimal(9,2)",
        "ts:timestamptz", "--key", "id", "--partition-by", "day(ts)", "--partition-by",
        "bucket(16, id)", "--sort-by", "id", "--property", "owner=anna=x", "--order-by", "ts",
        "--merge", "amount=sum", "--ttl", "ts=90 days", lake=lake,
    )  # fmt: skip

    assert made.exit_code == 0, made.stderr
    assert re.fullmatch(r"made shop\.orders, t000001-[0-9a-f]{12}\n", made.stdout)
    table = neve.open(lake).load_table("shop.orders")
    assert table.schema.to_json().count('"required":true') == 2
    assert str(table.schema.column("amount").type) == "decimal128(9, 2)"
    assert table.primary_key == ("id",)
    assert [field.name for field in table.spec.fields] == ["ts_day", "id_bucket"]
    assert str(table.sort_order) == "id"
    assert table.properties == {"owner": "anna=x"}
    assert rule_texts(table.schema)["merge"] == "amount: sum"
    assert rule_texts(table.schema)["ttl"] == "ts: 90 days"


def test_arrows_names_of_types_are_understood(lake: str) -> None:
    types = {"int32": "int", "INT64": "long", "float64": "double", "text": "string"}
    columns = [f"c{at}:{spelled}" for at, spelled in enumerate(types)]

    made = run("create", "a.b", *columns, "--key", "c0", "--json", lake=lake)

    assert made.exit_code == 0, made.stderr
    assert [column["type"] for column in json.loads(made.stdout)["columns"]] == list(types.values())


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (["a.b", "id:lnog", "--key", "id"], "there is no type 'lnog'", "Did you mean long?"),
        (["a.b", "id:###", "--key", "id"], "there is no type '###'", "There are boolean"),
        (["a.b", "id", "--key", "id"], "the column 'id' has no type", "Write id:string"),
        (["a.b", ":long", "--key", "id"], "the column ':long' has no name", "Write id:long"),
        (["a.b", "id:decimal", "--key", "id"], "no type 'decimal'", "mean decimal(9,2)?"),
        (["a.b", "id:decimal(99,2)", "--key", "id"], "no type 'decimal(99,2)'", "decimal(9,2)"),
        (["a.b", "id:fixed(0)", "--key", "id"], "there is no type 'fixed(0)'", "fixed(16)"),
        (["a.b", "id:long", "--key", "idd"], "no column is named 'idd'", "Did you mean 'id'"),
        (["b", "id:long", "--key", "id"], "has no namespace", "namespace.table"),
        (
            ["shop.orders", "id:long", "--key", "id"],
            "the table 'shop.orders' already exists",
            "--exists-ok",
        ),
        (
            ["a.b", "id:long", "--key", "id", "--property", "x"],
            "the property 'x' is not of the form NAME=VALUE",
            "owner=anna",
        ),
        (
            ["a.b", "id:long", "--key", "id", "--property", "neve.x=1"],
            "neve has no property 'neve.x'",
            "neve.retention.versions",
        ),
        (
            ["a.b", "id:long", "--key", "id", "--property", "x=1", "--property", "x=2"],
            "is given twice",
            "once",
        ),
    ],
    ids=range(13),
)
def test_a_wrong_definition_is_refused_with_what_to_do(
    catalog: Lake, lake: str, arguments: list[str], said: str, hint: str
) -> None:
    a_table(catalog)

    refused = run("create", *arguments, lake=lake)

    assert refused.exit_code == 2
    assert refused.stdout == ""
    first, second = refused.stderr.splitlines()
    assert said in first
    assert hint in second
    assert catalog.list_tables() == ["shop.orders"]


def test_a_key_is_required(lake: str) -> None:
    refused = run("create", "a.b", "id:long", lake=lake)

    assert refused.exit_code == 2
    assert "--key" in refused.stderr


# drop and rename


def test_dropping_and_renaming_say_what_they_did(catalog: Lake, lake: str) -> None:
    a_table(catalog)

    renamed = run("rename", "shop.orders", "eu.sales", lake=lake)
    assert renamed.stdout == "renamed shop.orders to eu.sales\n"
    dropped = run("drop", "eu.sales", "--purge", lake=lake)
    assert dropped.stdout == "dropped eu.sales and deleted its files\n"
    assert catalog.list_tables() == []


def test_a_table_that_a_writer_has_open_is_not_dropped_unless_forced(
    catalog: Lake, lake: str
) -> None:
    a_table(catalog)
    with catalog.table("shop.orders"):
        refused = run("drop", "shop.orders", lake=lake)
        kept = catalog.list_tables()
        forced = run("drop", "shop.orders", "--force", lake=lake)

    assert refused.exit_code == 4
    first, hint = refused.stderr.splitlines()
    assert first.startswith("neve: a writer has the table 'shop.orders' open")
    assert "--force" in hint
    assert kept == ["shop.orders"]
    assert forced.exit_code == 0, forced.stderr
    assert catalog.list_tables() == []


def test_a_table_that_was_not_dropped_can_be_written_again(catalog: Lake, lake: str) -> None:
    a_table(catalog)
    with catalog.table("shop.orders"):
        refused = run("drop", "shop.orders", lake=lake)

    assert refused.exit_code
    with catalog.table("shop.orders") as table:
        assert table.version == 1


def test_dropping_and_renaming_answer_in_json(catalog: Lake, lake: str) -> None:
    a_table(catalog)

    renamed = run("rename", "shop.orders", "eu.sales", "--json", lake=lake)
    assert json.loads(renamed.stdout) == {"old": "shop.orders", "new": "eu.sales"}
    table_id = catalog.table_meta("eu.sales").table_id
    dropped = run("drop", "eu.sales", "--json", lake=lake)
    assert json.loads(dropped.stdout) == {
        "dropped": "eu.sales",
        "table_id": table_id,
        "purged": False,
    }


def test_files_that_a_drop_left_can_be_deleted_later(lake: str) -> None:
    with neve.open(lake) as catalog, catalog.create_table("a.b", ORDERS, ["id"]) as table:
        table.put({"id": 1})
        table.flush()
        stored = table._open.stored
    root = f"{stored.paths.root}/"

    dropped = run("drop", "a.b", lake=lake)
    assert dropped.stdout.splitlines() == [
        f"dropped a.b; its files stay in tables/{stored.table_id}",
        f"`neve drop {stored.table_id} --purge` deletes them",
    ]
    assert list(stored.objects.list(root))

    for _ in range(2):
        purged = run("drop", stored.table_id, "--purge", lake=lake)
        assert purged.stdout == f"dropped {stored.table_id} and deleted its files\n"
    assert not list(stored.objects.list(root))


def test_files_of_a_table_that_is_there_are_not_deleted_by_its_id(catalog: Lake, lake: str) -> None:
    table = a_table(catalog)

    refused = run("drop", table.table_id, "--purge", lake=lake)
    unknown = run("drop", "t000099-0123456789ab", "--purge", lake=lake)

    assert refused.exit_code == unknown.exit_code == 2
    assert "the table is not dropped" in refused.stderr
    assert "there was never a table with the id" in unknown.stderr
    assert catalog.table_exists("shop.orders")
    assert catalog.recover().failures == {}


def test_dropping_says_that_readers_hold_the_files(catalog: Lake, lake: str) -> None:
    for name in ("shop.told", "shop.answered"):
        stored = a_table(catalog, name).stored
        leases = Leases(stored.objects, stored.paths.manifest, clock=SystemClock(), ids=SystemIds())
        leases.take(1, seconds=3_600)

    told = run("drop", "shop.told", "--purge", lake=lake)
    answered = run("drop", "shop.answered", "--purge", "--json", lake=lake)

    assert told.exit_code == answered.exit_code == 0
    first, second = told.stdout.splitlines()
    assert first == "dropped shop.told; readers still hold its files"
    assert "`neve recover`" in second
    assert json.loads(answered.stdout)["purged"] is False
    assert catalog.list_tables() == []


@pytest.mark.parametrize("command", ["drop", "describe", "history"])
def test_an_unknown_table_is_refused_with_a_similar_one(
    catalog: Lake, lake: str, command: str
) -> None:
    a_table(catalog)

    refused = run(command, "shop.ordes", lake=lake)

    assert refused.exit_code == 2
    assert refused.stderr == (
        "neve: there is no table 'shop.ordes'\n      Did you mean 'shop.orders'?\n"
    )


# tables, describe, history


def test_tables_are_listed_with_their_sizes(catalog: Lake, lake: str) -> None:
    a_table(catalog).commit([an_append(1, a_file())])
    a_table(catalog, "eu.x")

    listed = run("tables", lake=lake)

    assert listed.stdout == (
        "eu.x         version 1 · 0 rows · 0 files · 0 bytes\n"
        "shop.orders  version 2 · 10 rows · 1 file · 1,000 bytes\n"
    )
    assert run("tables", "eu", lake=lake).stdout.startswith("eu.x ")
    as_json = json.loads(run("tables", "shop", "--json", lake=lake).stdout)
    assert as_json == {
        "tables": [
            {
                "name": "shop.orders",
                "version": 2,
                "rows": 10,
                "files": 1,
                "bytes": 1_000,
                "index_bytes": 0,
                "unflushed_changes": 0,
            }
        ]
    }


def test_the_bytes_of_indexes_are_listed() -> None:
    lake = RowsLake().orders()
    lake.flushes([[{"id": number, "customer": "ada", "amount": None} for number in range(100)]])

    index_bytes = lake.json("tables")["tables"][0]["index_bytes"]

    assert index_bytes == 192 + 100 * 8
    assert " · 992 bytes of index\n" in lake.ok("tables")
    assert "992 bytes, made again when missing" in lake.ok("describe", "shop.orders")
    assert lake.json("describe", "shop.orders")["index_bytes"] == index_bytes


def test_changes_that_are_not_flushed_are_counted_wherever_rows_are() -> None:
    lake = RowsLake().orders((1, "ada", None), (2, "bob", None))

    assert lake.ok("tables") == (
        "shop.orders  version 1 · 0 rows · 0 files · 0 bytes · 2 changes not flushed\n"
    )
    assert lake.json("tables")["tables"][0]["unflushed_changes"] == 2
    assert lake.ok("scan", "shop.orders").splitlines()[-1] == (
        "2 rows · version 1 · 2 changes not flushed"
    )
    verified = lake.ok("verify", "shop.orders").splitlines()[0]
    assert verified.endswith(" · 2 changes not flushed")
    assert lake.json("verify", "shop.orders")["unflushed_changes"] == 2
    lake.ok("flush", "shop.orders")
    for command in (["tables"], ["scan", "shop.orders"], ["verify", "shop.orders"]):
        assert "not flushed" not in lake.ok(*command)


def test_a_damaged_table_is_listed_with_its_damage_beside_the_others(tmp_path: Path) -> None:
    lake = str(tmp_path)
    with neve.open(lake) as catalog:
        damaged = a_table(catalog, "shop.damaged")
        a_table(catalog, "shop.sound")
        head = tmp_path / damaged.stored.paths.manifest / "HEAD"
    head.write_bytes(b"\x1b[31mdamage")

    listed = run("tables", lake=lake)

    assert listed.exit_code == 0
    first, second = listed.stdout.splitlines()
    assert first.startswith("shop.damaged  ✗ ")
    assert second.startswith("shop.sound    version 1")
    assert "\x1b" not in listed.stdout
    assert "error" in json.loads(run("tables", "--json", lake=lake).stdout)["tables"][0]
    assert run("describe", "shop.damaged", lake=lake).exit_code == 5


def test_an_empty_warehouse_says_so(catalog: Lake, lake: str) -> None:
    assert catalog.list_tables() == []

    assert run("tables", lake=lake).stdout == "no tables\n"
    assert json.loads(run("tables", "--json", lake=lake).stdout) == {"tables": []}


def test_a_table_is_described_for_people_and_for_programs(catalog: Lake, lake: str) -> None:
    table = a_table(
        catalog,
        partition_by=["day(ts)", "bucket(16, id)", "truncate(4, customer)", "customer"],
        sort_by=["id"],
        properties={"owner": "anna\x1b[31m"},
    )

    described = run("describe", "shop.orders", lake=lake)

    assert described.exit_code == 0
    lines = described.stdout.splitlines()
    assert lines[0] == "shop.orders  version 1 · 0 rows in 0 files"
    assert "  key         id" in lines
    assert "  partitions  day(ts), bucket(16, id), truncate(4, customer), customer" in lines
    assert "  sorted by   id" in lines
    assert "  keeps       5 versions, or those of 24 h" in lines
    assert "     1  id        long         required, key" in lines
    assert "     2  customer  string" in lines
    assert "  owner  anna\\x1b[31m" in lines
    as_json = json.loads(run("describe", "shop.orders", "--json", lake=lake).stdout)
    assert as_json["table_id"] == table.table_id
    assert as_json["partition_by"] == [
        "day(ts)",
        "bucket(16, id)",
        "truncate(4, customer)",
        "customer",
    ]
    assert as_json["columns"][0] == {"id": 1, "name": "id", "type": "long", "nullable": False}
    assert as_json["retention"] == {"versions": 5, "milliseconds": 86_400_000}
    assert as_json["fingerprint"] == table.schema.fingerprint()


def test_a_history_is_told_oldest_first(catalog: Lake, lake: str) -> None:
    table = a_table(catalog)
    table.commit([an_append(1, a_file())])
    table.stored.writer_state.tag("monday", 2)

    told = run("history", "shop.orders", lake=lake).stdout.splitlines()

    assert [line.split()[0] for line in told] == ["1", "2"]
    assert told[0].endswith("CREATE")
    assert told[1].endswith("added-files=1  added-files-size=1000  added-records=10  #monday")
    as_json = json.loads(run("history", "shop.orders", "--json", lake=lake).stdout)
    assert as_json["table"] == "shop.orders"
    assert [version["parent"] for version in as_json["versions"]] == [None, 1]
    assert as_json["versions"][1]["summary"]["added-files"] == "1"
    assert as_json["versions"][1]["summary"]["total-records"] == "10"
    assert as_json["versions"][1]["tags"] == ["monday"]


# Where the warehouse is


@pytest.mark.parametrize("form", ["{}", "file://{}", "FILE://{}"])
def test_commands_that_only_look_make_no_directory(tmp_path: Path, form: str) -> None:
    missing = tmp_path / "missing"

    refused = run("tables", lake=form.format(missing))

    assert refused.exit_code == 2
    assert f"there is no store in {missing}\n" in refused.stderr
    assert not missing.exists()


def test_a_directory_without_a_catalog_stays_without(tmp_path: Path) -> None:
    refused = run("tables", lake=str(tmp_path))

    assert refused.exit_code == 2
    assert "there is no lake here" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_environment_can_say_where_the_warehouse_is(
    catalog: Lake, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_table(catalog)
    monkeypatch.setenv("NEVE_LAKE", lake)

    assert run("tables").stdout.startswith("shop.orders")


def test_without_a_warehouse_a_command_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEVE_LAKE", raising=False)

    refused = run("tables")

    assert refused.exit_code == 2
    assert "--lake" in refused.stderr


def test_a_secret_among_the_storage_options_is_never_shown(lake: str) -> None:
    for option in ("s3cr3t", "secret_access_key=s3cr3t", "=s3cr3t"):
        refused = run("tables", "--storage-option", option, lake=lake)

        assert refused.exit_code == 2
        assert "s3cr3t" not in refused.stderr


# set


def properties(lake: RowsLake) -> dict[str, str]:
    found: dict[str, str] = lake.json("describe", "shop.orders")["properties"]
    return found


def test_properties_are_set_and_removed_in_one_go() -> None:
    lake = RowsLake().orders()
    lake.ok("set", "shop.orders", "owner=anna", "team=web")

    said = lake.ok("set", "shop.orders", "owner=bob=x", "--unset", "team")

    assert said.splitlines() == ["owner = bob=x, was anna", "team removed, was web"]
    assert properties(lake) == {"owner": "bob=x"}
    assert lake.json("set", "shop.orders", "a=1")["properties"] == {"owner": "bob=x", "a": "1"}


def test_retention_that_is_set_is_kept_to() -> None:
    lake = RowsLake().orders()

    lake.ok("set", "shop.orders", "neve.retention.versions=20")

    assert lake.json("describe", "shop.orders")["retention"]["versions"] == 20
    lake.ok("set", "shop.orders", "--unset", "neve.retention.versions")
    assert lake.json("describe", "shop.orders")["retention"]["versions"] == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no property is given"),
        (["owner"], "is not of the form NAME=VALUE"),
        (["a=1", "--unset", "a"], "a"),
        (["--unset", "ownr"], "has no property 'ownr'"),
        (["neve.retention.versions=x"], "cannot be 'x'"),
        (["neve.retentoin.versions=1"], "neve has no property"),
    ],
    ids=range(6),
)
def test_a_property_that_cannot_be_is_refused_and_none_is_changed(
    words: list[str], said: str
) -> None:
    lake = RowsLake().orders()
    lake.ok("set", "shop.orders", "owner=anna")

    refused = lake.run("set", "shop.orders", *words)

    assert refused.exit_code == 2
    assert said in refused.stderr
    assert properties(lake) == {"owner": "anna"}
