"""Numbers on the command line: counts and byte offsets.

They are taken as neve prints them (11,498) and as other tools give them (11498, 0x2cea).
"""

import re
from typing import Final

import click

_DECIMAL: Final = re.compile(r"[0-9]{1,18}|[0-9]{1,3}(?:,[0-9]{3}){1,5}")
_HEXADECIMAL: Final = re.compile(r"0[xX][0-9a-fA-F]{1,15}")


class WholeNumber(click.ParamType[int]):
    """A number of 0 or more: decimal, with commas between thousands or without, or hexadecimal."""

    name = "number"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read the number; anything else is wrong usage."""
        if isinstance(value, int):
            return value
        if _HEXADECIMAL.fullmatch(value):
            return int(value, 16)
        if not _DECIMAL.fullmatch(value):
            self.fail(
                f"{value!a} is not a number of 0 or more; write it like 11498, 11,498 or 0x2cea",
                param,
                ctx,
            )
        return int(value.replace(",", ""))
