"""Numbers on the command line: counts, byte offsets and sizes.

Counts are taken as neve prints them (11,498) and as other tools give them (11498, 0x2cea). Sizes
may have a unit: 512MiB, 2GB.
"""

import re
from typing import Final

import click

_DECIMAL: Final = re.compile(r"[0-9]{1,18}|[0-9]{1,3}(?:,[0-9]{3}){1,5}")
_HEXADECIMAL: Final = re.compile(r"0[xX][0-9a-fA-F]{1,15}")
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*(?:([KMGT])(i?)B?|B)?", re.IGNORECASE)
_POWERS: Final = "KMGT"


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


class ByteSize(click.ParamType[int]):
    """A number of bytes above 0, with a unit or without: 512MiB, 2GB, 1000000."""

    name = "size"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read the size; anything else is wrong usage."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value.strip())
        number = 0 if found is None else int(found[1])
        if found is None or not number:
            self.fail(f"{value!a} is not a size; write it like 512MiB, 2GB or 1000000", param, ctx)
        if found[2]:
            number *= (1024 if found[3] else 1000) ** (1 + _POWERS.index(found[2].upper()))
        return number


memory_option = click.option(
    "--memory-limit",
    type=ByteSize(),
    metavar="SIZE",
    show_default="256MiB and the size of the file, at most 1GiB",
    help="Memory that decoding the file may take.",
)
