"""A Version as a notebook shows it: what its commit says, and its levels."""

from collections.abc import Mapping, Sequence
from typing import Final

from neve.model.display import counted, shown_bytes, shown_moment
from neve.model.version import Version
from neve.notebook import Cell, Markup, facts, levels_of, levels_svg, page, picture

_NAMES_SHOWN: Final = 20


def version_page(
    title: str, version: Version, members: Mapping[str, Cell], *notes: Markup, unflushed: int = 0
) -> str:
    """Show a Version, with what else is known of it."""
    return page(
        title,
        *notes,
        facts(
            {
                **members,
                "committed": commit_words(version),
                "parent": None if version.parent is None else str(version.parent),
                "summary": pair_words(version.facts.summary),
            }
        ),
        levels_part(version, unflushed=unflushed),
        line=size_words(version),
    )


def levels_part(version: Version, *, unflushed: int = 0) -> Markup:
    """Draw the levels of a Version."""
    return picture(levels_svg(levels_of(version.files.values()), unflushed=unflushed))


def size_words(version: Version) -> str:
    """Say how large a Version is, in one line."""
    return " · ".join(
        (
            f"version {version.number:,}",
            counted(version.row_count, "row"),
            counted(len(version.files), "file"),
            shown_bytes(byte_count(version)),
        )
    )


def byte_count(version: Version) -> int:
    """Add up the data files of a Version."""
    return sum(file.file_bytes for file in version.files.values())


def commit_words(version: Version) -> str:
    """Say when a Version was committed, and what the commit did."""
    return f"{shown_moment(version.facts.timestamp_ms)} · {version.facts.operation}"


def pair_words(pairs: Mapping[str, str]) -> str:
    """Return names with their values in one line, the first of them."""
    return first_words([f"{name}={value}" for name, value in sorted(pairs.items())])


def first_words(names: Sequence[str]) -> str:
    """Return the first of some names in one line, and how many more there are."""
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
