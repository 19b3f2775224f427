"""KeyCommand: a command whose arguments may be negative numbers, which look like options."""

import re
from typing import Final

import click

from neve.cli.commands import DocumentedCommand

_NEGATIVE: Final = re.compile(r"-\.?[0-9]")
_END_OF_OPTIONS: Final = "--"


class KeyCommand(DocumentedCommand):
    """Takes -5 for an argument; an unknown option stays wrong usage."""

    ignore_unknown_options = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse unknown options, then let click take what is left."""
        known = {name: option for option in self.get_params(ctx) for name in option.opts}
        is_value = False
        for arg in args:
            if arg == _END_OF_OPTIONS:
                break
            option = known.get(arg.partition("=")[0]) if not is_value else None
            if is_value or not arg.startswith("-") or arg == "-" or _NEGATIVE.match(arg):
                is_value = False
            elif option is None:
                raise click.NoSuchOption(arg, possibilities=sorted(known), ctx=ctx)
            else:
                takes_value = isinstance(option, click.Option) and not option.is_flag
                is_value = takes_value and "=" not in arg
        return super().parse_args(ctx, args)
