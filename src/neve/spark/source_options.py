"""Names of the options of `format("neve")`: one that is nearly right is refused, not passed over.

Spark adds options of its own, so that an unknown name alone is no mistake.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from neve.errors import InvalidArgument

_STORAGE_PREFIX: Final = "storage."


def refuse_slips(given: Iterable[str], known: Sequence[str]) -> None:
    """Raise InvalidArgument for a name that is almost one of those known."""
    names = [name.lower() for name in known]
    for name in given:
        folded = name.lower()
        if folded in names or folded.startswith(_STORAGE_PREFIX):
            continue
        similar = difflib.get_close_matches(folded, names, n=1)
        if similar:
            meant = known[names.index(similar[0])]
            raise InvalidArgument(
                f"the format neve has no option {name!a}", hint=f"Did you mean {meant!a}?"
            )


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """Give the options of the warehouse's storage, without what they begin with."""
    return {
        name[len(_STORAGE_PREFIX) :]: value
        for name, value in options.items()
        if name.lower().startswith(_STORAGE_PREFIX)
    }
