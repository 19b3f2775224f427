"""Writes the pages of commands when the site is built, out of the commands themselves.

    commands/index.md     all commands, what many of them take, exit codes, JSON
    commands/scan.md      one page for each word behind `neve`; a group has its commands on its page

What a page says is what `--help` says: usage, arguments, options with their defaults, examples.
Nothing of it is written twice, so no file of these pages exists.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from neve.cli.commands import DocumentedCommand, leaf_commands
from neve.cli.exit_codes import EXIT_CODE_WORDS
from neve.cli.main import cli

FOLDER: Final = "commands"
_COMMAND: Final = "neve"
_INDEX: Final = f"{FOLDER}/index.md"
# Names of options, and names in capitals that stand for what is typed.
_TYPED: Final = re.compile(r"((?<![\w-])--[a-z][\w-]*|\$?\b[A-Z][A-Z_]+(?:\|[A-Z]{2,})*\b)")
_MARKUP: Final = re.compile(r"([*_<>])")
# No backslash hides these from Markdown.
_ENTITIES: Final = {"<": "&lt;", ">": "&gt;"}
_PLAIN_CAPITALS: Final = frozenset(
    {"ASCII", "CSV", "HEAD", "JSON", "MANIFEST", "NULL", "RFC", "URL", "UTF"}
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages in the navigation, where their index stands."""
    pages: list[object] = [_INDEX, *({f"neve {name}": _path(name)} for name in command_pages())]
    nav: list[dict[str, object]] = config.nav or []
    for item in nav:
        if item.get("Commands") == _INDEX:
            item["Commands"] = pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those that are files."""
    files.append(File.generated(config, _INDEX, content=index_page()))
    for name, page in command_pages().items():
        files.append(File.generated(config, _path(name), content=page))
    return files


def command_pages() -> dict[str, str]:
    """Give the page of each word behind `neve`, in the order of its help."""
    leaves = leaf_commands(cli, below=_COMMAND)
    return {
        name: "\n".join(_page(name, [*group]))
        for name, group in groupby(leaves, key=lambda leaf: leaf[0].split()[1])
    }


def index_page() -> str:
    """Give the page that leads to all of them."""
    return "\n".join(_index_lines())


def _path(name: str) -> str:
    return f"{FOLDER}/{name}.md"


def _index_lines() -> Iterator[str]:
    yield "# Commands"
    yield ""
    yield (
        "`neve COMMAND --help` says on a terminal what these pages say. All examples work on the "
        "table that the first one makes, with the lake named by the environment: "
    )
    yield ""
    yield "```sh"
    yield "export NEVE_LAKE=./lake"
    yield from _first_example()
    yield "```"
    yield ""
    yield "| command | does |"
    yield "|---|---|"
    for words, command, context in leaf_commands(cli, below=_COMMAND):
        page = words.split()[1]
        anchor = "" if words == f"neve {page}" else f"#{_anchor(words)}"
        usage = _cell(f"`{' '.join([words, *_arguments(command, context)])}`")
        yield f"| [{usage}]({page}.md{anchor}) | {_cell(_marked(_summary(command)))} |"
    yield ""
    yield "## Options of `neve` itself"
    yield ""
    root = click.Context(cli, info_name=_COMMAND, **cli.context_settings)
    yield from _options(cli.get_params(root), root)
    yield ""
    yield "## How a command ends"
    yield ""
    yield "| exit code | means |"
    yield "|---|---|"
    for code, meaning in EXIT_CODE_WORDS.items():
        yield f"| {code} | {meaning} |"
    yield ""
    yield from inspect.cleandoc(_ENDING).splitlines()


def _page(name: str, group: list[tuple[str, click.Command, click.Context]]) -> Iterator[str]:
    yield f"# neve {name}"
    yield ""
    if len(group) == 1 and group[0][0] == f"neve {name}":
        yield from _sections(*group[0], heading="##")
        return
    parent = group[0][2].parent
    assert parent is not None, "a command of a group has the group's context above"
    yield from _text(parent.command)
    for leaf in group:
        yield f"## {leaf[0]}"
        yield ""
        yield from _sections(*leaf, heading="###")


def _sections(
    words: str, command: click.Command, context: click.Context, *, heading: str
) -> Iterator[str]:
    yield "```text"
    yield " ".join([words, "[OPTIONS]", *_arguments(command, context)])
    yield "```"
    yield ""
    yield from _text(command)
    parameters = command.get_params(context)
    arguments = [each for each in parameters if isinstance(each, click.Argument)]
    if arguments:
        yield "| argument | is |"
        yield "|---|---|"
        for argument in arguments:
            metavar, text = argument.get_help_record(context)
            yield f"| {_cell(f'`{metavar}`')} | {_cell(_marked(text))} |"
        yield ""
    yield from _options(parameters, context)
    yield ""
    if isinstance(command, DocumentedCommand) and command.examples:
        yield f"{heading} Examples of {words}"
        yield ""
        yield "```sh"
        yield from command.examples
        yield "```"
        yield ""
    yield "[Exit codes and `--json`](index.md#how-a-command-ends)"
    yield ""


def _options(parameters: Iterable[click.Parameter], context: click.Context) -> Iterator[str]:
    yield "| option | does |"
    yield "|---|---|"
    for option in parameters:
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            names, text = record
            yield f"| {_cell(f'`{names}`')} | {_cell(_marked(text))} |"


def _arguments(command: click.Command, context: click.Context) -> list[str]:
    parameters = command.get_params(context)
    return [each.make_metavar(context) for each in parameters if isinstance(each, click.Argument)]


def _text(command: click.Command) -> Iterator[str]:
    yield from _marked(inspect.cleandoc(command.help or "")).splitlines()
    yield ""


def _summary(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "").partition("\n\n")[0].replace("\n", " ")


def _first_example() -> list[str]:
    found = {words: command for words, command, _ in leaf_commands(cli, below=_COMMAND)}
    create = found["neve create"]
    assert isinstance(create, DocumentedCommand), "the command has examples"
    return [create.examples[0]]


def _marked(text: str) -> str:
    """Give a help text as Markdown: what is typed as code, and nothing else as markup."""
    pieces = text.split("`")
    # Every other piece stands between backticks already.
    pieces[::2] = ["".join(map(_marked_word, _TYPED.split(piece))) for piece in pieces[::2]]
    return "`".join(pieces)


def _marked_word(word: str) -> str:
    is_typed = _TYPED.fullmatch(word) is not None and word not in _PLAIN_CAPITALS
    return f"`{word}`" if is_typed else _MARKUP.sub(_escaped, word)


def _escaped(markup: re.Match[str]) -> str:
    return _ENTITIES.get(markup[0], f"\\{markup[0]}")


def _cell(text: str) -> str:
    """Return a text as a cell of a table; between backticks, a stroke ends no cell."""
    pieces = text.replace("\n", " ").split("`")
    pieces[::2] = [piece.replace("|", "\\|") for piece in pieces[::2]]
    return "`".join(pieces)


def _anchor(heading: str) -> str:
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


_ENDING: Final = """
    An error is one line on standard error, `neve: what and where`, and below it what to do. With
    `--json` it is one JSON document on a line of standard error, and standard output stays for the
    answer:

    ```json
    {"error": {"kind": "NotFound", "message": "there is no …", "hint": "…", "exit_code": 2}}
    ```

    ## JSON

    With `--json` a command answers with one JSON document on standard output. Three give something
    else on purpose: `neve scan` and `neve changes` with `--format jsonl` give one object to a line,
    and `neve inspect wal` gives a document for each file.

    ## Beside a writer

    Commands that read work beside a writer, and so do `neve tag`, `neve consumers`, `neve set` and
    `neve evolve`. Those that write rows or files need the table's lock: exit code 4 says that
    another process has it. A lake that is not there is an error; only `neve create` and `neve demo`
    make one.

    ## Tables

    Tables of rows are never cut. On a terminal, cells that are too wide continue on the next line;
    `--wide` gives one line for each row, as in a pipe or a file.

    ## Times

    A time is `2024-01-31T12:00:00+00:00`, milliseconds since 1970, or an age: `90s`, `30m`, `12h`,
    `7d`, with or without ` ago`.

    ## Completion

    `neve --install-completion` teaches bash, zsh or fish to complete commands and options, and
    tables, columns and tags of the lake.
"""
