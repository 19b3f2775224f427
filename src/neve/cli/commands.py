"""The classes of commands: groups that load a command when it is called, commands with examples.

Help, completion and `--version` need only the table of summaries, so they start in a fraction of
the time that the engine takes to load.

An example is a whole command line. A test runs all of them, in a lake with the table of the first
example of `neve create`.
"""

import gc
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import click
from click.shell_completion import CompletionItem

from neve.cli.interrupts import raise_when_interrupted

# Commands below a group inherit its help options.
_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is defined, and what it does in one line."""

    module: str
    attribute: str
    summary: str


def _begin() -> None:
    """Leave what holds only while modules are loaded, see `neve.__main__`."""
    raise_when_interrupted()
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


class LazyGroup(click.Group):
    """A group that knows its commands by name until one of them is run."""

    def __init__(
        self,
        name: str,
        *,
        lazy_commands: Mapping[str, LazyCommand],
        about: str,
        params: Sequence[click.Parameter] = (),
    ) -> None:
        super().__init__(name, help=about, params=[*params], context_settings=_SETTINGS)
        self._lazy_commands = dict(lazy_commands)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        del ctx
        return [*self._lazy_commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command's module and return the command; None for an unknown name."""
        del ctx
        lazy = self._lazy_commands.get(cmd_name)
        if lazy is None:
            return None
        command = getattr(importlib.import_module(lazy.module), lazy.attribute)
        if not isinstance(command, LazyGroup):
            _begin()
        return cast("click.Command", command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest the one with the most similar name."""
        name = args[0]
        if name in self._lazy_commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        raise click.NoSuchCommand(name, possibilities=[*self._lazy_commands], ctx=ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without loading any."""
        del ctx
        rows = [(name, lazy.summary) for name, lazy in self._lazy_commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands without loading any, and options."""
        names = [
            CompletionItem(name, help=lazy.summary)
            for name, lazy in self._lazy_commands.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


class DocumentedCommand(click.Command):
    """A command whose help ends with examples."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's signature
        examples: Sequence[str] = (),
        **settings: Any,  # noqa: ANN401 - click's signature
    ) -> None:
        super().__init__(*args, **settings)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are typed."""
        super().format_epilog(ctx, formatter)
        if not self.examples:
            return
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class DocumentedGroup(click.Group):
    """A group of such commands, whose module is loaded with them."""

    command_class = DocumentedCommand


def leaf_commands(
    group: click.Group, *, below: str
) -> Sequence[tuple[str, click.Command, click.Context]]:
    """Return every command that is not a group, with its context and the words that call it.

    For example `neve scan` and `neve evolve TABLE add`.
    """
    found: list[tuple[str, click.Command, click.Context]] = []
    context = click.Context(group, info_name=below, **group.context_settings)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"the table of commands has {name}"
        if isinstance(command, click.Group):
            arguments = [each for each in command.params if isinstance(each, click.Argument)]
            taken = "".join(f" {each.make_metavar(context)}" for each in arguments)
            found += leaf_commands(command, below=f"{below} {name}{taken}")
        else:
            inside = click.Context(command, context, name, **command.context_settings)
            found.append((f"{below} {name}", command, inside))
    return found
