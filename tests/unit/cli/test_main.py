"""How every command ends: one line on standard error, a hint, and an exit code by the error."""

import io
import re
import sys

import click
import pytest
from click.testing import CliRunner

from neve.cli.commands import LazyCommand, LazyGroup
from neve.cli.exit_codes import EXIT_CODE_WORDS, Declined, report_failure
from neve.cli.main import cli
from neve.cli.standard_output import OutputClosed, OutputFailed
from neve.errors import (
    AlreadyExists,
    Closed,
    Conflict,
    Corruption,
    InvalidArgument,
    LimitExceeded,
    NeveError,
    NotFound,
    Unavailable,
)
from neve.kernel import is_compiled


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidArgument("no"), 2),
        (NotFound("no"), 2),
        (AlreadyExists("no"), 2),
        (Conflict("no"), 3),
        (Unavailable("no"), 3),
        (Closed("no"), 4),
        (Corruption("no"), 5),
        (LimitExceeded("no", limit=1), 6),
        (click.UsageError("no"), 2),
        (Declined("nothing was dropped", hint="use --yes"), 7),
        (click.Abort(), 130),
        (KeyboardInterrupt(), 130),
        (OutputClosed(), 141),
        (OutputFailed("No space left on device"), 3),
        (ZeroDivisionError("no"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_failure_has_its_exit_code(error: BaseException, code: int) -> None:
    assert report_failure(error) == code


def test_an_error_is_one_line_with_its_place_and_its_hint_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = Corruption("checksum mismatch", path="000001.wal", offset=11_498, hint="Get a copy")

    report_failure(error)

    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "neve: checksum mismatch in 000001.wal at byte 11,498",
        "      Get a copy",
    ]


def test_control_characters_in_an_error_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report_failure(NotFound("there is no file \x1b[31mred\n", hint="\x07"))

    assert capsys.readouterr().err == ("neve: there is no file \\x1b[31mred\\n\n      \\x07\n")


def test_an_output_that_cannot_be_written_is_one_line_and_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report_failure(OutputFailed("No space left on device"))

    first, hint = capsys.readouterr().err.splitlines()
    assert first == "neve: could not write the output: No space left on device"
    assert hint.startswith("      Make room")


def test_an_error_stands_below_what_was_shown_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    both = io.BytesIO()
    shown = io.TextIOWrapper(both, encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(both, "utf-8", write_through=True))
    print("a drawing")

    report_failure(Corruption("the log is damaged"))

    assert both.getvalue() == b"a drawing\nneve: the log is damaged\n"


def test_an_error_on_a_terminal_without_the_characters_is_told_in_ascii(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(said, "ascii", write_through=True))

    report_failure(NotFound("there is no file abc…"))

    assert said.getvalue() == b"neve: there is no file abc>\n"


def test_a_bug_shows_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        _ = 1 // 0
    except ZeroDivisionError as error:
        report_failure(error)

    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "neve: unexpected ZeroDivisionError" in said
    assert "bug in neve" in said


def test_a_reader_that_went_away_is_no_news(capsys: pytest.CaptureFixture[str]) -> None:
    report_failure(OutputClosed())

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["frob"], "neve: No such command 'frob'."),
        (["dmeo"], "neve: No such command 'dmeo'. Did you mean 'demo'?"),
        (["inspect", "wall"], "neve: No such command 'wall'. Did you mean 'wal'?"),
        (["--frob"], "neve: No such option '--frob'."),
        (["inspect", "wal"], "neve: Missing argument 'FILE...'."),
        (["inspect", "wal", "--limit", "-1", "x"], "neve: Invalid value for '--limit'"),
        (["inspect", "wal", "--from", "x", "x"], "neve: Invalid value for '--from': 'x' is not a"),
        (["inspect", "wal", "--payload", "soup", "x"], "neve: Invalid value for '--payload'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_exit_code_two_and_points_to_the_help(args: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, args)

    assert result.exit_code == 2
    assert result.stderr.startswith(said)
    assert "--help` shows how to call it" in result.stderr
    assert result.stdout == ""


def test_without_a_command_the_help_is_shown_as_an_error() -> None:
    result = CliRunner().invoke(cli, [])

    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: neve")


def test_help_lists_every_command_with_its_summary() -> None:
    result = CliRunner().invoke(cli, ["--help"])

    assert result.exit_code == 0
    assert re.search(r"demo +Show what neve does", result.stdout)
    assert re.search(r"inspect +Take a file of a table apart", result.stdout)


def test_help_tells_what_each_exit_code_means() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).stdout.partition("Exit codes:")[2]

    assert [int(code) for code in re.findall(r"^  (\d+) ", shown, re.MULTILINE)] == [
        *EXIT_CODE_WORDS
    ]
    assert {error.exit_code for error in _all_errors(NeveError)} < EXIT_CODE_WORDS.keys()


def _all_errors(kind: type[NeveError]) -> list[NeveError]:
    here = [] if kind is NeveError else [kind.__new__(kind)]
    return [*here, *(each for below in kind.__subclasses__() for each in _all_errors(below))]


@pytest.mark.parametrize("args", [[], ["demo"], ["inspect"], ["inspect", "wal"]], ids=" ".join)
def test_the_word_help_asks_for_help(args: list[str]) -> None:
    result = CliRunner().invoke(cli, ["help", *args])

    assert result.exit_code == 0
    assert result.stdout == CliRunner().invoke(cli, [*args, "--help"]).stdout


@pytest.mark.parametrize("args", [[], ["demo"], ["inspect"], ["inspect", "wal"]], ids=" ".join)
def test_a_short_option_asks_for_help_everywhere(args: list[str]) -> None:
    result = CliRunner().invoke(cli, [*args, "-h"])

    assert result.exit_code == 0
    assert result.stdout.startswith(" ".join(["Usage: neve", *args]))
    assert result.stdout == CliRunner().invoke(cli, [*args, "--help"]).stdout


def test_the_version_is_the_packages() -> None:
    result = CliRunner().invoke(cli, ["--version"])

    assert result.exit_code == 0
    assert result.stdout.startswith("neve 0.")
    assert result.stdout.endswith(
        f" ({'with' if is_compiled else 'without'} the compiled kernel)\n"
    )


def test_every_command_in_the_tables_can_be_loaded() -> None:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        if isinstance(command, LazyGroup):
            for inner in command.list_commands(context):
                loaded = command.get_command(context, inner)
                assert loaded is not None
                assert loaded.name == inner


def test_completion_knows_commands_without_loading_them() -> None:
    group = LazyGroup(
        "tool",
        lazy_commands={"run": LazyCommand("no.such.module", "run", "Run it")},
        about="A tool.",
    )

    completions = group.shell_complete(click.Context(group), "r")

    assert [(item.value, item.help) for item in completions] == [("run", "Run it")]


def test_errors_of_commands_come_through_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise Conflict("somebody else was first", hint="Try again")

    def get_command(_self: LazyGroup, _ctx: click.Context, _name: str) -> click.Command:
        return failing

    monkeypatch.setattr(LazyGroup, "get_command", get_command)

    result = CliRunner().invoke(cli, ["demo"])

    assert result.exit_code == 3
    assert result.stderr == "neve: somebody else was first\n      Try again\n"
