"""Names of the options of `format("neve")`: one that is nearly right is refused, not passed over.

Spark adds options of its own, so that an unknown name alone is not a mistake. `CREATE TABLE` adds
`provider` and others, and asks for columns unless the statement has them. It keeps the options in
Spark's catalog, but hands none of them to the reads and writes that follow. So a table that is made
like this could never be read, and is refused as early as Spark lets a source speak.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from neve.errors import InvalidArgument
from neve.model.suggestions import similar_name

_STORAGE_PREFIX: Final = "storage."
_OF_CREATE_TABLE: Final = "provider"
_INSTEAD_OF_CREATE_TABLE: Final = (
    "CREATE TEMPORARY VIEW orders USING neve OPTIONS (path 'the lake', table 'namespace.name'), "
    "or neve.spark.view"
)


def refuse_slips(given: Iterable[str], known: Sequence[str]) -> None:
    """Raise InvalidArgument for a name that is almost one of those known."""
    names = [name.lower() for name in known]
    for name in given:
        folded = name.lower()
        if folded in names or folded.startswith(_STORAGE_PREFIX):
            continue
        similar = similar_name(folded, names)
        if similar is not None:
            meant = known[names.index(similar)]
            raise InvalidArgument(
                f"the format neve has no option {name!a}", hint=f"Did you mean {meant!a}?"
            )


def refuse_create_table(options: Mapping[str, str]) -> None:
    """Raise InvalidArgument for a table of Spark's own catalog: at CREATE, or at its first use."""
    names = {name.lower() for name in options}
    if _OF_CREATE_TABLE in names:
        raise InvalidArgument(
            "Spark's catalog cannot hold a table of neve: CREATE TABLE … USING neve keeps its "
            "options from every read",
            hint=f"Write {_INSTEAD_OF_CREATE_TABLE}; make the table itself with neve",
        )
    if not names & {"path", "table"}:
        raise InvalidArgument(
            "the source neve was asked for no table: neither path nor table is set",
            hint='Write .option("table", "namespace.name") and the lake in load or save. A table '
            "that CREATE TABLE … USING neve made cannot be used: drop it and write "
            + _INSTEAD_OF_CREATE_TABLE,
        )


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the warehouse's storage, without what they begin with."""
    return {
        name[len(_STORAGE_PREFIX) :]: value
        for name, value in options.items()
        if name.lower().startswith(_STORAGE_PREFIX)
    }
