"""Rows of a table as an Arrow dataset: DuckDB, Polars and others ask it for columns and filters.

    duckdb.from_arrow(orders.dataset()).filter("amount > 5")
    pl.scan_pyarrow_dataset(orders.dataset()).filter(pl.col("amount") > 5).collect()

Each run asks the source for a scan, so columns and filters are pushed into it: the files are pruned
as by `table.scan`. A filter means what Arrow means by it. One that has no predicate, see
`neve.read.arrow_filters`, is evaluated on every row. The dataset of a scan runs this scan, and
Arrow filters its rows.

Arrow's own code would read the files of a dataset, and there are none to read as they are: what is
not asked for through Python fails with the name of this class.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import Any, Final, NoReturn, Protocol, Self, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import InvalidArgument
from neve.model.schema import TableSchema
from neve.read.arrow_filters import Comparing, arrow_predicate
from neve.read.chosen_columns import compact_schema
from neve.read.filters import Filter

# `pyarrow.dataset.Dataset`, which takes long to load.
ArrowDataset: TypeAlias = Any
_NOT_A_FILE: Final = "a ScanDataset of neve, which is read by scanner(), to_table() or to_batches()"
_DONE_BY_ARROW: Final = ("join", "join_asof", "sort_by", "replace_schema", "get_fragments", "take")


class Scanned(Protocol):
    """A scan."""

    @property
    def schema(self) -> pa.Schema:
        """Columns that are returned."""

    def to_arrow(self) -> pa.Table:
        """Read everything."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read batch by batch."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Read batch by batch."""

    def count(self) -> int:
        """Count the rows."""

    def explain(self) -> object:
        """Say what a run reads."""

    def compact(self, dictionaries: Collection[str]) -> Self:
        """Return columns in compact forms, and these columns of text as dictionaries."""


class ScanSource(Protocol):
    """What a dataset reads: a table, a snapshot, a transaction."""

    @property
    def schema(self) -> TableSchema:
        """Columns of its rows."""

    def scan(
        self,
        filter: Filter | None = None,  # noqa: A002 - the name of the contract
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Scanned:
        """Describe a scan."""


class InexactError(Exception):
    """A filter whose rows might not be exactly those that the engine means."""


@dataclass(slots=True)
class RunLog:
    """What the runs of a dataset did: an engine returns what they raise only as text."""

    scans: list[Scanned] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def noted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the batches, and note what reading them raises."""
        try:
            yield from batches
        except Exception as error:
            self.failures.append(error)
            raise


class ScanRun:
    """One run of a dataset: what engines ask of Arrow's `Scanner`."""

    def __init__(
        self, scan: Scanned, make: Callable[[int | None], Scanned], log: RunLog | None
    ) -> None:
        self.scan = scan
        self._make = make
        self._log = log
        self.projected_schema = self.dataset_schema = scan.schema

    def to_reader(self) -> pa.RecordBatchReader:
        """Read batch by batch."""
        if self._log is None:
            return self.scan.to_reader()
        batches = self._log.noted(self.scan.to_batches())
        return pa.RecordBatchReader.from_batches(self.scan.schema, batches)

    def to_table(self) -> pa.Table:
        """Read everything."""
        return self.scan.to_arrow()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read batch by batch."""
        return self.scan.to_batches()

    def count_rows(self) -> int:
        """Count the rows."""
        return self.scan.count()

    def head(self, num_rows: int) -> pa.Table:
        """Read the first rows found."""
        return self._make(num_rows).to_arrow()


def scan_dataset(
    source: ScanSource,
    *,
    comparing: Comparing = Comparing.ARROW,
    log: RunLog | None = None,
    is_checked: bool = False,
    dictionaries: Collection[str] = (),
) -> ArrowDataset:
    """Return the rows of a source as a dataset, whose runs are noted in the log.

    With the comparisons of another engine, a filter without a predicate is InexactError; or it is
    left out, if the engine checks all rows once more. Such an engine gets columns in compact forms,
    and columns of text in `dictionaries` as dictionaries.
    """
    schema = source.schema.arrow_schema
    if comparing is not Comparing.ARROW:
        schema = compact_schema(schema, dictionaries)

    def run(columns: Sequence[str] | None, asked: pc.Expression | None) -> ScanRun:
        try:
            found: Filter | None = asked
            if asked is not None:
                found = arrow_predicate(asked, source.schema, comparing)
            if asked is not None and found is None:
                if comparing is Comparing.ARROW:
                    found = asked
                elif not is_checked:
                    raise InexactError(str(asked))  # noqa: TRY301 - noted below
            make = partial(source.scan, found, columns)
            scan = make(None)
            if comparing is not Comparing.ARROW:
                scan = scan.compact(dictionaries)
        except Exception as error:
            if log is not None:
                log.failures.append(error)
            raise
        if log is not None:
            log.scans.append(scan)
        return ScanRun(scan, make, log)

    return _dataset_class()(schema, run)


def dataset_of(scan: Scanned) -> ArrowDataset:
    """Return a scan as a dataset, whose runs are runs of the scan."""
    scanner = import_module("pyarrow.dataset").Scanner

    def run(columns: Sequence[str] | None, asked: pc.Expression | None) -> object:
        return scanner.from_batches(scan.to_reader(), columns=columns, filter=asked)

    return _dataset_class()(scan.schema, run)


@cache
def _dataset_class() -> Callable[..., ArrowDataset]:
    arrow = import_module("pyarrow.dataset")
    local = import_module("pyarrow.fs").LocalFileSystem()

    class ScanDataset(arrow.FileSystemDataset):  # type: ignore[misc,name-defined]
        """Rows of a table; see `neve.read.dataset`."""

        def __init__(
            self,
            schema: pa.Schema,
            run: Callable[..., object],
            filter_: pc.Expression | None = None,
        ) -> None:
            kind = arrow.ParquetFileFormat()
            fragment = kind.make_fragment(_NOT_A_FILE, local)
            super().__init__([fragment], schema, kind, local)
            self._run = run
            self._filter = filter_

        @property
        def files(self) -> list[str]:
            """None that can be read as they are."""
            return []

        def scanner(
            self,
            columns: object = None,
            filter: pc.Expression | None = None,  # noqa: A002 - Arrow's name
            **_options: object,
        ) -> object:
            """Run a scan; Arrow's other options do not change its rows."""
            if isinstance(columns, dict):
                raise InvalidArgument(
                    "a dataset of a table does not calculate columns",
                    hint="Name the columns, and calculate on the rows that are read",
                )
            wanted = None if columns is None else list(cast("Sequence[str]", columns))
            if self._filter is not None:
                filter = self._filter if filter is None else self._filter & filter  # noqa: A001
            return self._run(wanted, filter)

        def filter(self, expression: pc.Expression) -> ArrowDataset:
            """Return a dataset of the rows that also match a filter."""
            joined = expression if self._filter is None else self._filter & expression
            return type(self)(self.schema, self._run, joined)

        def __reduce__(self) -> NoReturn:
            raise InvalidArgument(
                "a dataset of a table cannot be copied, nor sent to another process",
                hint="Open the table there, and make the dataset again",
            )

    for name in _DONE_BY_ARROW:
        setattr(ScanDataset, name, _refused(name))
    return ScanDataset


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **_named: object) -> NoReturn:
        raise InvalidArgument(
            f"a dataset of a table has no {name}", hint="Read it first, with to_table()"
        )

    return refuse
