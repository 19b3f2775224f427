"""DuckDB as the engine of queries: one database in memory for each lake, closed to the outside.

    external access       off: no files, no network, no ATTACH, no extensions; what does not fit
                          into memory is an error, not a file
    replacement scans     off: names in a query never reach variables of the program
    configuration         locked: no statement can turn anything on again

Each statement runs on a connection of its own, on which its relations are registered, so threads do
not see each other's names. Errors of DuckDB become errors of neve, with DuckDB's caret.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Final

import duckdb
import pyarrow as pa

from neve.catalog.sql_door import Frame, Parameters
from neve.errors import InvalidArgument, LimitExceeded, NeveError, NotFound, Unavailable
from neve.model.suggestions import suggestion

_CLOSED: Final = (
    "SET temp_directory = ''",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET allow_community_extensions = false",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
)
_ALWAYS: Final = ("SET GLOBAL TimeZone = 'UTC'",)
_LOCK: Final = "SET lock_configuration = true"
_CANDIDATES: Final = re.compile(r'(?:Candidate bindings: |Did you mean )"?([^",?\n]+)')
_MISSING: Final = re.compile(r"does not exist|not found in FROM clause|not found\b")
_OUTSIDE: Final = re.compile(
    r"disabled through configuration|external access|file system operations|"
    r"been locked|LocalFileSystem|disabled by configuration",
    re.IGNORECASE,
)


class Database:
    """A DuckDB database in memory; safe for many threads."""

    def __init__(self, *, external_access: bool) -> None:
        self._is_open = external_access
        self._root = duckdb.connect()
        for setting in (*_ALWAYS, *(() if external_access else (*_CLOSED, _LOCK))):
            self._root.execute(setting)

    def connection(self) -> "Connection":
        """Open a connection; close it when done."""
        return Connection(self._root.cursor(), reaches_files=self._is_open)

    def close(self) -> None:
        """End the database."""
        self._root.close()


class Connection:
    """A connection with relations by name; for one thread."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, *, reaches_files: bool) -> None:
        self._connection = connection
        self.reaches_files = reaches_files
        """Whether a name may be a file."""

    def register(self, name: str, frame: Frame) -> None:
        """Make a frame or dataset a relation; raises InvalidArgument for anything else."""
        try:
            self._connection.register(name, frame)
        except (duckdb.Error, pa.ArrowException) as error:
            raise InvalidArgument(
                f"{name} is a {type(frame).__name__}, which has no rows",
                hint="Pass an Arrow table, a pandas or a Polars frame",
            ) from error

    def register_unpushed(self, name: str, frame: Frame) -> None:
        """Make a dataset a relation into which DuckDB pushes columns but no filters."""
        inner = _inner(name)
        self._connection.unregister(name)
        self._connection.register(inner, frame)
        # No filter of a query passes an OFFSET.
        self._connection.execute(
            f"CREATE TEMP VIEW {_quoted(name)} AS SELECT * FROM {_quoted(inner)} OFFSET 0"
        )

    def copy_unpushed(self, name: str) -> None:
        """Read a relation of `register_unpushed` into memory: not even joins push into it then."""
        self._connection.execute(f"DROP VIEW {_quoted(name)}")
        self._connection.execute(
            f"CREATE TEMP TABLE {_quoted(name)} AS SELECT * FROM {_quoted(_inner(name))}"
        )

    def rows(self, text: str, params: Parameters | None = None) -> pa.Table:
        """Run one query; raises errors of neve."""
        with explained():
            done = (
                self._connection.execute(text, params)
                if params
                else (self._connection.execute(text))
            )
            return done.to_arrow_table()

    def interrupt(self) -> None:
        """Stop what runs, from another thread."""
        self._connection.interrupt()

    def close(self) -> None:
        """Forget the relations."""
        self._connection.close()


def _inner(name: str) -> str:
    return f"{name} "


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@cache
def reserved_words() -> frozenset[str]:
    """Return words that are not names of columns unless they are quoted."""
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
        )
        return frozenset(word for (word,) in found.fetchall())


@contextmanager
def explained() -> Iterator[None]:
    """Raise errors of neve instead of DuckDB's."""
    try:
        yield
    except duckdb.Error as error:
        raise _own(error) from error


def _own(error: duckdb.Error) -> NeveError:
    text = str(error)
    _, _, message = text.partition(": ")
    message, line, place = (message or text).partition("\n\nLINE ")
    drawing = f"\n{line.strip()} {place}" if line else ""
    hint: str | None = None
    candidate = _CANDIDATES.search(message)
    if candidate is not None:
        hint = suggestion(candidate[1], is_quoted=False)
        message = message[: candidate.start()]
    message = message.strip().rstrip("!.")
    # The drawing is before the reason, so that a hint may follow.
    reason = f"{drawing}\n{message}" if drawing else f": {message}"
    what = f"the query failed{reason}"
    match error:
        case duckdb.ParserException() | duckdb.SyntaxException():
            return InvalidArgument(f"the SQL cannot be read{reason}", hint=hint)
        case _ if _OUTSIDE.search(message):
            return InvalidArgument(
                f"SQL reaches only the tables of the lake{reason}",
                hint="Pass frames by name, or use sql_session(external_access=True) for text you "
                "trust",
            )
        case duckdb.BinderException() | duckdb.CatalogException() if _MISSING.search(message):
            return NotFound(what, hint=hint)
        case duckdb.OutOfMemoryException():
            return LimitExceeded(what, limit=0, hint="Ask for fewer rows at once")
        case duckdb.IOException() | duckdb.HTTPException() | duckdb.ConnectionException():
            return Unavailable(what, hint=hint)
        case _:
            return InvalidArgument(what, hint=hint)


def arrow_type(connection: Connection, text: str) -> pa.DataType:
    """Return the Arrow type of a type's name in SQL; raises InvalidArgument."""
    if text.upper() == "UUID":
        return pa.uuid()
    found: pa.DataType = connection.rows(f"SELECT CAST(NULL AS {text}) AS c").schema.field("c").type
    return found


def names_of(parameters: Sequence[str]) -> str:
    """Return quoted names, separated by commas."""
    return ", ".join(map(_quoted, parameters))
