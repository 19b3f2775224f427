"""The examples that commands show in their help and on the site work as they stand."""

import json
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from neve.cli.commands import DocumentedCommand, leaf_commands
from neve.cli.main import cli
from neve.server import http_server

Leaf = tuple[str, click.Command, click.Context]

LEAVES = leaf_commands(cli, below="neve")
EXAMPLES = [
    example
    for _, command, _ in LEAVES
    if isinstance(command, DocumentedCommand)
    for example in command.examples
]
MAKES_THE_TABLE = EXAMPLES[0]
ROWS = [
    {"id": 1, "customer": "ada", "amount": "9.50", "ts": "2024-01-31T12:00:00+00:00"},
    {"id": 2, "customer": "bob", "amount": "3.00", "ts": "2024-02-01T12:00:00+00:00"},
]


def first_example(command: click.Command) -> str:
    assert isinstance(command, DocumentedCommand)
    return command.examples[0]


def is_on_a_lake(command: click.Command) -> bool:
    return any(each.name == "lake" for each in command.params)


ALL_BUT_THE_DEMO = [leaf for leaf in LEAVES if leaf[0] != "neve demo"]
# The first one, `neve create`, makes the warehouse.
ON_A_LAKE = [leaf for leaf in ALL_BUT_THE_DEMO if is_on_a_lake(leaf[1])]
ON_A_TABLE = [leaf for leaf in ON_A_LAKE[1:] if "shop.orders" in first_example(leaf[1])]
# To sort by, what begins with - is a column.
WITH_OPTIONS = [leaf for leaf in ALL_BUT_THE_DEMO if not leaf[0].endswith(" sort-by")]


def run(line: str) -> Result:
    """Run an example as a shell would: `< file` is standard input."""
    words = shlex.split(line)
    stdin = b""
    if "<" in words:
        place = words.index("<")
        stdin = Path(words[place + 1]).read_bytes()
        del words[place : place + 2]
    assert words[0] == "neve"
    return CliRunner().invoke(cli, words[1:], input=stdin)


def ok(line: str) -> None:
    done = run(line)
    assert done.exit_code == 0, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a warehouse in which the examples make sense, and files beside it."""
    directory = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setenv("NEVE_LAKE", "./lake")
        ok(MAKES_THE_TABLE)
        lines = "".join(f"{json.dumps(row)}\n" for row in ROWS)
        Path("orders.jsonl").write_text(lines)
        Path("tokens.toml").write_text(
            '[[token]]\nname = "a"\ntoken = "0123456789abcdef"\nscopes = ["read"]\n'
        )
        Path("orders.csv").write_text("id;customer\n3;cyd\nx;dan\n")
        Path("changes.csv").write_text("op,id,customer,lsn\nu,3,cyd,2\nd,2,,1\n")
        Path("topic.jsonl").write_text('{"op": "d", "before": {"id": 2}, "source": {"lsn": 7}}\n')
        ok("neve put shop.orders - < orders.jsonl")
        ok("neve flush shop.orders")
        ok("neve tag shop.orders monthly")
        ok("neve set shop.orders owner=anna")
        ok("""neve put shop.orders '{"id": 1, "customer": "ada", "amount": "12"}'""")
        ok("neve flush shop.orders")
        ok("neve put shop.orders - < orders.jsonl")
    table = next((directory / "lake" / "tables").iterdir())
    shutil.copy(min(table.glob("data/**/*.parquet")), directory / "part.parquet")
    shutil.copy(min(table.glob("deletes/**/*.puffin")), directory / "vectors.puffin")
    shutil.copy(max(table.glob("wal/*/*.wal")), directory / "000001.wal")
    return directory


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the directory of the examples, as the one that commands run in."""
    # A server would listen on a port that others may have, and wait for its end.
    listen = http_server._listening
    monkeypatch.setattr(http_server, "_listening", lambda _host, _port: listen("127.0.0.1", 0))
    monkeypatch.setattr(http_server.LakeServer, "wait", lambda _self: None)
    copy = tmp_path / "place"
    shutil.copytree(made, copy)
    monkeypatch.chdir(copy)
    monkeypatch.setenv("NEVE_LAKE", "./lake")
    return copy


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.usefixtures("place")
def test_an_example_works_as_it_stands(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if example == MAKES_THE_TABLE:
        monkeypatch.setenv("NEVE_LAKE", "./empty")

    done = run(example)

    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("leaf", ALL_BUT_THE_DEMO, ids=lambda leaf: leaf[0])
def test_a_command_shows_an_example_of_itself_below_its_options(leaf: Leaf) -> None:
    words, command, _ = leaf
    assert isinstance(command, DocumentedCommand)
    assert command.examples
    called = words.replace("TABLE", "shop.orders")
    assert all(
        example.startswith(f"{called} ") or example == called for example in command.examples
    )

    shown = CliRunner().invoke(cli, [*called.split()[1:], "--help"])

    assert shown.stdout.endswith(
        "".join(["\nExamples:\n", *(f"  {example}\n" for example in command.examples)])
    )


# In every command


@pytest.mark.parametrize("leaf", ALL_BUT_THE_DEMO, ids=lambda leaf: leaf[0])
@pytest.mark.usefixtures("place")
def test_an_answer_for_programs_is_one_json_document(
    leaf: Leaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = first_example(leaf[1])
    if example == MAKES_THE_TABLE:
        monkeypatch.setenv("NEVE_LAKE", "./empty")

    done = run(f"{example} --json")

    assert done.exit_code == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)


@pytest.mark.parametrize("leaf", ON_A_LAKE[1:], ids=lambda leaf: leaf[0])
def test_a_warehouse_that_is_not_there_is_told_and_never_made(
    leaf: Leaf, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEVE_LAKE", "./lkae")

    lost = run(first_example(leaf[1]))
    for_programs = run(f"{first_example(leaf[1])} --json")

    first, hint = lost.stderr.splitlines()
    assert lost.exit_code == for_programs.exit_code == 2
    assert first.startswith("neve: there is no ")
    assert "lkae" in first
    assert "Check --lake or NEVE_LAKE" in hint
    error = json.loads(for_programs.stderr)["error"]
    assert (error["kind"], error["exit_code"], error["hint"]) == ("NotFound", 2, hint.strip())
    assert for_programs.stdout == ""
    assert not (place / "lkae").exists()


@pytest.mark.parametrize("leaf", ON_A_TABLE, ids=lambda leaf: leaf[0])
@pytest.mark.usefixtures("place")
def test_a_mistyped_table_is_told_with_the_one_that_is_meant(leaf: Leaf) -> None:
    lost = run(first_example(leaf[1]).replace("shop.orders", "shop.ordres", 1))

    assert lost.exit_code == 2
    assert lost.stderr.splitlines() == [
        "neve: there is no table 'shop.ordres'",
        "      Did you mean 'shop.orders'?",
    ]


@pytest.mark.parametrize("leaf", WITH_OPTIONS, ids=lambda leaf: leaf[0])
def test_a_mistyped_option_is_told_with_the_one_that_is_meant(leaf: Leaf) -> None:
    words, command, _ = leaf
    called = words.replace("TABLE", "shop.orders").split()[1:]
    option = next(each.opts[0] for each in command.params if isinstance(each, click.Option))

    lost = CliRunner().invoke(cli, [*called, f"{option}x"])

    first, hint = lost.stderr.splitlines()
    assert lost.exit_code == 2
    assert first.startswith(f"neve: No such option '{option}x'. ")
    assert "Did you mean " in first
    assert f"'{option}'" in first
    assert hint.endswith("--help` shows how to call it")


@pytest.mark.parametrize("leaf", ALL_BUT_THE_DEMO, ids=lambda leaf: leaf[0])
def test_what_commands_share_has_one_name_and_stands_in_one_place(leaf: Leaf) -> None:
    _, command, context = leaf
    names = [
        each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)
    ]
    options = {each.opts[0]: each for each in command.params if isinstance(each, click.Option)}

    assert "--json" in options
    assert not {"NAME", "OLD", "TABLE"} & set(names[1:]), "the table comes first"
    if "--lake" in options:
        assert options["--lake"].envvar == "NEVE_LAKE"
        assert "--storage-option" in options
    if "--filter" in options:
        assert options["--filter"].opts == ["--filter", "--where"]
    if "--version" in options:
        assert options["--version"].metavar == "N"
    assert all(argument.help for argument in command.params if isinstance(argument, click.Argument))
