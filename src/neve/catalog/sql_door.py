"""What the catalog knows of SQL: what a statement returns, and who runs it.

SQL is an extra and a layer above the catalog, so the catalog does not import it: `neve.open` hands
in the function that loads it, and `LakeStores` keeps what that returns, once for each lake.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from neve.errors import InvalidArgument

# A frame of pandas or Polars, or anything of Arrow; neither needs to be installed.
Frame: TypeAlias = Any
Parameters: TypeAlias = Sequence[object] | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SqlResult:
    """What a statement returned: rows of a query, or how many rows a statement changed."""

    rows: pa.Table
    count: int
    """Rows that were changed; for a query, rows that were returned."""
    statement: str = "SELECT"
    """The kind of the statement: SELECT, INSERT, CREATE TABLE, …"""

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.rows

    def to_pandas(self, **options: Any) -> Frame:  # noqa: ANN401 - Arrow's own
        """Return the rows as a pandas frame; options are those of `pyarrow.Table.to_pandas`."""
        return self.rows.to_pandas(**options)

    def to_polars(self) -> Frame:
        """Return the rows as a Polars frame."""
        try:
            return import_module("polars").from_arrow(self.rows)
        except ImportError as error:
            raise InvalidArgument(
                "polars is not installed", hint="Install it: pip install polars"
            ) from error

    def fetchall(self) -> list[tuple[object, ...]]:
        """Return the rows as tuples."""
        columns = [column.to_pylist() for column in self.rows.columns]
        return list(zip(*columns, strict=True)) if columns else []

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        return self.rows.to_pylist()

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        return iter(self.fetchall())

    def __len__(self) -> int:
        return self.rows.num_rows

    def __str__(self) -> str:
        return str(self.rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Let DuckDB, Polars and others read it directly."""
        stream: object = self.rows.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
        return stream

    def _repr_html_(self) -> str:
        return f"<pre>{self.statement}: {self.count:,} rows</pre>"


class SqlSession(AbstractContextManager["SqlSession"], Protocol):
    """Runs statements one after the other; BEGIN … COMMIT spans several. For one thread."""

    def sql(self, text: str, params: Parameters | None = None, **frames: Frame) -> SqlResult:
        """Run statements; return what the last one returned."""

    def close(self) -> None:
        """Roll an open transaction back, and end the session; twice is not an error."""


class SqlEngine(Protocol):
    """Opens sessions on one lake; safe for many threads."""

    def session(
        self,
        *,
        external_access: bool = False,
        this: Any = None,  # noqa: ANN401 - a Table, which imports this module
        transaction: Any = None,  # noqa: ANN401 - a LakeTransaction, as above
    ) -> SqlSession:
        """Begin a session; `this` is the table of that name, `transaction` what it runs in."""

    def close(self) -> None:
        """Close the tables that were opened to be read; twice is not an error."""


MakeSqlEngine: TypeAlias = Callable[[Any], SqlEngine]
"""Takes the lake."""
