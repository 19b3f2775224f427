"""Commands that show examples: in their help, and on their page of the site.

An example is a whole command line. All of them are run by a test, in a warehouse with the table of
the first example of `neve create`.
"""

from collections.abc import Sequence
from typing import Any

import click


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
        """Write the examples, each as it is typed."""
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
    """Return every command that does something, by the words that call it, and its context.

    Words are such as `neve scan` and `neve evolve TABLE add`.
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
