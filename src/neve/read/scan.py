"""Scan: many rows of a table at one moment, as Arrow.

A scan is a description until one of its methods runs it; each run reads the same view at the same
sequence. Rows in memory are taken when the scan is made, files are pinned while a run lasts.

    in any order     pieces of all files, some read ahead by threads; rows in memory last
    by key           with `key_range` or `reverse`: see `neve.keys.merge`

A Version is clean, so no key is in two files: a scan only drops rows that vectors mark and rows
whose keys are in the memtables. `explain` reports what a scan will do and what its last run did:

    scan of version 7, by key descending, at most 10 rows
      columns    id, amount
      filter     amount > 5
      expired    ts up to 2024-01-31T12:00:00+00:00
      keys       80000005 up to 80000009
      files      3 of 40 (pruned: 30 by key, 2 by partition, 5 by statistics)
      filter on  2 of 3 files
      memory     120 rows
      bytes      1,234,567 to read at most
      groups     4 read, 9 pruned in the last run
"""

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from itertools import accumulate, chain, islice
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from neve.errors import InvalidArgument
from neve.keys.arrays import key_at
from neve.keys.columns import KeyArray
from neve.keys.merge import Block, LoadBlock, Source, ordered_rows
from neve.keys.order import SortKey
from neve.keys.ranges import KeyRange
from neve.model.array_fit import empty_rows
from neve.model.arrow_buffers import flag_array
from neve.model.data_file import DataFile
from neve.model.display import listed, shown
from neve.notebook import facts, note, page, shown_page
from neve.read.chosen_columns import chosen_columns, compact_columns
from neve.read.dataset import ArrowDataset, dataset_of
from neve.read.file_rows import BATCH_ROWS, FilePieces, FileRows, Piece
from neve.read.filters import Filter, row_filter
from neve.read.memory_rows import MemoryRows, keys_of
from neve.read.scan_plan import PlannedFile, ScanPlan, asked_range, plan_scan, unexpired
from neve.storage.own_process import KeptInProcess
from neve.table.table_view import Row, TableView

_SHOWN_KEY_BYTES = 24
_HOW_TO_READ = "not read yet: to_arrow(), to_pandas(), to_polars(), to_batches() and count() read"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanExplanation:
    """Facts about a scan; `str` prints them."""

    version: int
    columns: tuple[str, ...]
    filter: str
    """As the caller wrote it; empty for none."""
    order: str
    """"none", "ascending" or "descending" by key."""
    limit: int | None
    key_start: bytes | None
    key_end: bytes | None
    files_total: int
    files_read: int
    pruned_by_key: int
    pruned_by_partition: int
    pruned_by_statistics: int
    needs_filter: dict[str, bool]
    """By path of each file that is read: whether its rows are filtered."""
    expired: str
    """Rows that are left out because they have expired; empty where no row expires."""
    rows_memtable: int
    """Live rows in memory whose keys are in the range."""
    byte_count: int
    """Stored bytes of the columns that are read; groups that will be pruned are counted."""
    groups_read: int | None
    """Row groups of the last complete run; None before the first."""
    groups_pruned: int | None

    def __str__(self) -> str:
        lines = [self._title()]
        for title, text in self._parts():
            if text:
                lines.append(f"  {title:<11}{text}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return shown_page("Scan", self._page)

    def _page(self) -> str:
        hint = note(_HOW_TO_READ if self.groups_read is None else "")
        return page(self._title().capitalize(), facts(dict(self._parts())), hint)

    def _title(self) -> str:
        order = "" if self.order == "none" else f", by key {self.order}"
        limit = "" if self.limit is None else f", at most {self.limit:,} rows"
        return f"scan of version {self.version}{order}{limit}"

    def _parts(self) -> list[tuple[str, str]]:
        reasons = [
            f"{count:,} by {name}"
            for count, name in (
                (self.pruned_by_key, "key"),
                (self.pruned_by_partition, "partition"),
                (self.pruned_by_statistics, "statistics"),
            )
            if count
        ]
        pruned = f" (pruned: {', '.join(reasons)})" if reasons else ""
        asked = sum(self.needs_filter.values())
        return [
            ("columns", ", ".join(self.columns)),
            ("filter", self.filter),
            ("expired", self.expired),
            ("keys", self._keys()),
            ("files", f"{self.files_read:,} of {self.files_total:,}{pruned}"),
            (
                "filter on",
                f"{asked:,} of {self.files_read:,} files" if self.filter or self.expired else "",
            ),
            ("memory", f"{self.rows_memtable:,} rows"),
            ("bytes", f"{self.byte_count:,} to read at most"),
            (
                "groups",
                f"{self.groups_read:,} read, {self.groups_pruned:,} pruned in the last run"
                if self.groups_read is not None
                else "",
            ),
        ]

    def _keys(self) -> str:
        if self.key_start is None and self.key_end is None:
            return ""
        start = "the first" if self.key_start is None else _shown_key(self.key_start)
        end = "the last" if self.key_end is None else _shown_key(self.key_end)
        return f"{start} up to {end}"


def _shown_key(key: bytes) -> str:
    text = key[:_SHOWN_KEY_BYTES].hex()
    return text if len(key) <= _SHOWN_KEY_BYTES else f"{text}…"


_WORKERS_MAX: Final = 8
# Threads cost more than they gain for fewer stored bytes of a local table.
_THREADED_BYTES: Final = 2 << 20


Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class PieceWork(Protocol[Result_co]):
    """A method of FileRows that reads one piece."""

    def __call__(self, rows: FileRows, piece: Piece, /, *, use_threads: bool) -> Result_co:
        """Read the piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """The arguments of a scan; by default all rows, in any order."""

    filter: Filter | None = None
    columns: Sequence[str] | None = None
    limit: int | None = None
    key_range: tuple[object, object] | None = None
    reverse: bool = False


@dataclass(slots=True)
class GroupCounts:
    """Row groups that one run of a scan read, and row groups that it could skip."""

    read: int = 0
    pruned: int = 0


class ReadLease(Protocol):
    """A lease that keeps the files of a Version from being deleted."""

    def check(self) -> None:
        """Raise when the files may be gone."""


# DataFrames of pandas and Polars; neither needs to be installed.
Frame: TypeAlias = Any
Rows: TypeAlias = Generator[pa.Table, None, None]
Pin: TypeAlias = Callable[[], AbstractContextManager[ReadLease | None]]


class Scan(KeptInProcess):
    """Rows of a view; can run many times. An Arrow C stream, and iterable by batches."""

    def __init__(
        self,
        view: TableView,
        request: ScanRequest,
        *,
        sequence: int | None,
        check: Callable[[], None] = lambda: None,
        pin: Pin = nullcontext,
    ) -> None:
        """Describe a scan at a sequence, None for all rows in the view's memtables.

        `check` is called before each piece is read, and raises when the table was closed; `pin`
        keeps the files while a run lasts. Raises InvalidArgument, NotFound, SchemaMismatch.
        """
        limit = request.limit
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidArgument(
                f"a limit of {limit!a} rows", hint="Pass a whole number from 0, or None"
            )
        context = view.context
        self._view = view
        self._columns = chosen_columns(request.columns, context.schema)
        self._names = self._columns.names
        self._dictionaries: Collection[str] = ()
        self._filter = unexpired(row_filter(request.filter, context.schema), view)
        self._key_range = asked_range(request.key_range, context.encoder)
        self._limit = limit
        self._is_ordered = request.key_range is not None or request.reverse
        self._is_descending = bool(request.reverse)
        self._wants_many = limit is None or limit > BATCH_ROWS
        self._check = check
        self._pin = pin
        self._memory = MemoryRows(view, sequence)
        self._last_counts: GroupCounts | None = None

    def timed(self, monotonic: Callable[[], float], report: Callable[[float], None]) -> Self:
        """Report how many seconds each run takes, until its last row is read."""
        pin = self._pin

        @contextmanager
        def timed() -> Iterator[ReadLease | None]:
            began = monotonic()
            with pin() as lease:
                yield lease
            report(monotonic() - began)

        self._pin = timed
        return self

    def compact(self, dictionaries: Collection[str]) -> Self:
        """Return the columns in compact forms, and these columns of text as dictionaries."""
        self._dictionaries = dictionaries
        self._columns = compact_columns(self._columns, dictionaries)
        return self

    @property
    def schema(self) -> pa.Schema:
        """Columns that are returned."""
        return self._columns.schema

    @property
    def key_range(self) -> KeyRange:
        """Encoded keys that it reads: as asked, and as its filter implies."""
        return self._plan.key_range

    def __repr__(self) -> str:
        asked = f", filter={shown(self._filter.text)}" if self._filter.text else ""
        limit = "" if self._limit is None else f", limit={self._limit}"
        columns = listed(self._columns.asked)
        return f"Scan(version={self._view.version}, columns=[{columns}]{asked}{limit})"

    def _repr_html_(self) -> str:
        # The explanation and no rows: finding the first row may mean reading every file.
        return shown_page("Scan", lambda: self.explain()._repr_html_())

    # Running it

    def to_arrow(self) -> pa.Table:
        """Read all rows into memory."""
        tables = list(self._tables())
        return pa.concat_tables(tables) if tables else empty_rows(self.schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Read batch by batch; memory is bounded by a few row groups."""
        for table in self._tables():
            yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Read batch by batch, as a reader for Arrow's own functions."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Let DuckDB, Polars and others read it directly."""
        stream: object = self.to_reader().__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]
        return stream

    def dataset(self) -> ArrowDataset:
        """Return it as a `pyarrow.dataset.Dataset`, each of whose runs is a run of this scan."""
        return dataset_of(self)

    def to_pylist(self) -> list[Row]:
        """Read all rows as dicts, as Arrow returns them."""
        return self.to_arrow().to_pylist()

    def to_pandas(self, **options: Any) -> Frame:  # noqa: ANN401 - Arrow's own
        """Read all rows into a pandas DataFrame.

        Options are those of `pyarrow.Table.to_pandas`, such as `types_mapper=pd.ArrowDtype`. An
        unknown one is InvalidArgument, before a row is read.
        """
        _installed("pandas")
        _as_frame(empty_rows(self.schema), options)
        return _as_frame(self.to_arrow(), options)

    def to_polars(self) -> Frame:
        """Read all rows into a Polars DataFrame."""
        return _installed("polars").from_arrow(self.to_arrow())

    def count(self) -> int:
        """Count the rows; without a filter no row is read."""
        counts, hidden = GroupCounts(), self._memory.hidden
        total = self._count_in_memory()
        rest: list[PlannedFile] = []
        with self._pin() as lease:
            self._check_before_read(lease)
            for planned in self._plan.files:
                file = planned.file
                if planned.needs_filter or not self._is_whole(file):
                    rest.append(planned)
                    continue
                total += file.live_count
                newer = hidden(file.key_min, file.key_max)
                if newer:
                    self._check_before_read(lease)
                    total -= self._hidden_count(planned, newer)
            for found in self._each_piece(rest, FileRows.count, counts, lease, ahead=True):
                total += found
        return total if self._limit is None else min(total, self._limit)

    def explain(self) -> ScanExplanation:
        """Return what a run reads and what it skips, without reading any data file."""
        plan = self._plan
        order = "none"
        if self._is_ordered:
            order = "descending" if self._is_descending else "ascending"
        return ScanExplanation(
            version=self._view.version,
            columns=self._columns.asked,
            filter=self._filter.text,
            order=order,
            limit=self._limit,
            key_start=plan.key_range.start,
            key_end=plan.key_range.end,
            files_total=plan.files_total,
            files_read=len(plan.files),
            pruned_by_key=plan.pruned_by_key,
            pruned_by_partition=plan.pruned_by_partition,
            pruned_by_statistics=plan.pruned_by_statistics,
            needs_filter={each.file.path: each.needs_filter for each in plan.files},
            expired="" if self._view.cutoff is None else str(self._view.cutoff),
            rows_memtable=self._memory.live_count(plan.key_range),
            byte_count=sum(self._stored_bytes(each) for each in plan.files),
            groups_read=None if self._last_counts is None else self._last_counts.read,
            groups_pruned=None if self._last_counts is None else self._last_counts.pruned,
        )

    @cached_property
    def _plan(self) -> ScanPlan:
        return plan_scan(
            self._view, names=self._names, row_filter=self._filter, key_range=self._key_range
        )

    def _tables(self) -> Iterator[pa.Table]:
        """Run the scan; tables are never empty, and stop at the limit."""
        left = self._limit
        if left == 0:
            return
        counts = GroupCounts()
        with self._pin() as lease:
            self._check_before_read(lease)
            run = self._ordered if self._is_ordered else self._unordered
            # Closed before the pin ends: threads may still read.
            with closing(run(counts, lease)) as tables:
                for table in map(self._columns.given, tables):
                    if left is not None and table.num_rows >= left:
                        self._last_counts = counts
                        yield table.slice(0, left)
                        return
                    left = None if left is None else left - table.num_rows
                    yield table
        self._last_counts = counts

    def _check_before_read(self, lease: ReadLease | None) -> None:
        self._check()
        if lease is not None:
            lease.check()

    def _stored_bytes(self, planned: PlannedFile) -> int:
        file, schema = planned.file, self._view.context.schema
        names = self._plan.names_read(needs_filter=planned.needs_filter)
        wanted = {schema.column(name).field_id for name in names}
        known = [each.compressed_bytes for each in file.statistics if each.field_id in wanted]
        # For nested columns only the leaves are known.
        return sum(known) if len(known) == len(wanted) else file.file_bytes

    # In any order

    def _unordered(self, counts: GroupCounts, lease: ReadLease | None) -> Rows:
        reading = self._each_piece(
            self._plan.files, FileRows.read, counts, lease, ahead=self._wants_many
        )
        with closing(reading) as tables:
            for table in tables:
                if table is not None:
                    yield table
        for part in self._memory.parts(self._plan.key_range):
            block = self._chosen_in_memory(*part)
            if block is not None:
                yield block[0]

    def _each_piece(
        self,
        files: Sequence[PlannedFile],
        work: PieceWork[Result],
        counts: GroupCounts,
        lease: ReadLease | None,
        *,
        ahead: bool,
    ) -> Generator[Result, None, None]:
        """Read each piece of files, in their order; in threads where it pays."""
        # Threads begin with the first job: without one, this costs nothing.
        workers = min(pa.cpu_count() + 1, _WORKERS_MAX)
        pool = ThreadPoolExecutor(workers, thread_name_prefix="neve-scan")
        try:
            opening = self._openings(files, lease)
            opens_ahead = ahead and len(files) > 1 and not all(each.probe.is_open for each in files)
            opened = _ahead(pool, workers, opening) if opens_ahead else _now(opening)
            pieces = self._pieces(opened, counts, lease)
            first = list(islice(pieces, 2))
            by_piece = ahead and len(first) > 1 and not self._is_quick(files, first[0])
            # Either pieces are read in parallel, or the columns of one are.
            jobs = (
                partial(work, each.rows, each, use_threads=not by_piece)
                for each in chain(first, pieces)
            )
            yield from _ahead(pool, workers, jobs) if by_piece else _now(jobs)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _is_quick(self, files: Iterable[PlannedFile], first: Piece) -> bool:
        """Return whether files are near, and have few bytes to read."""
        if not first.rows.is_local:
            return False
        stored = accumulate(map(self._stored_bytes, files))
        return all(each < _THREADED_BYTES for each in stored)

    def _openings(
        self, files: Iterable[PlannedFile], lease: ReadLease | None
    ) -> Iterator[Callable[[], FilePieces]]:
        """Yield the job that opens each file; an open one is neither read nor checked."""
        for planned in files:
            if not planned.probe.is_open:
                self._check_before_read(lease)
            yield partial(self._open, planned)

    def _open(self, planned: PlannedFile) -> FilePieces:
        # A merge by key encodes its key columns, which it wants as text.
        dictionaries = () if self._is_ordered else self._dictionaries
        rows = FileRows(planned, self._plan, self._view, self._memory, dictionaries)
        if not self._wants_many:
            # The first group may be enough.
            return rows.pieces(rows_max=0)
        # A merge by key keeps a piece of each file in memory.
        return rows.pieces(rows_max=BATCH_ROWS if self._is_ordered else None)

    def _pieces(
        self, opened: Iterable[FilePieces], counts: GroupCounts, lease: ReadLease | None
    ) -> Iterator[Piece]:
        """Yield the pieces of opened files, counted and each checked before it is read."""
        for found in opened:
            counts.pruned += found.pruned
            for piece in found.pieces:
                counts.read += piece.group_count
                self._check_before_read(lease)
                yield piece

    def _chosen_in_memory(self, rows: pa.Table, keys: KeyArray) -> tuple[pa.Table, KeyArray] | None:
        """Return the rows of a part that the filter chooses; None when there are none."""
        if not self._plan.filter.is_trivial:
            mask = flag_array(self._plan.filter.mask(rows))
            rows, keys = rows.filter(mask), keys.filter(mask)
        return (rows.select(self._names), keys) if len(keys) else None

    # By key

    def _ordered(self, counts: GroupCounts, lease: ReadLease | None) -> Rows:
        runs: list[list[Source]] = []
        by_run: dict[tuple[object, ...], list[PlannedFile]] = {}
        for planned in self._plan.files:
            file = planned.file
            # Files of level 0 may overlap; those above do not within their partition.
            part = file.path if file.level == 0 else (file.spec_id, file.partition)
            by_run.setdefault((file.level, part), []).append(planned)
        for members in by_run.values():
            members.sort(key=lambda each: each.file.key_min, reverse=self._is_descending)
            runs.append([self._source(each, counts, lease) for each in members])
        runs.append(self._memory_sources())
        return ordered_rows(runs, descending=self._is_descending, limit=self._limit)

    def _source(self, planned: PlannedFile, counts: GroupCounts, lease: ReadLease | None) -> Source:
        file = planned.file

        def loads() -> Iterator[LoadBlock]:
            self._check_before_read(lease)
            found = self._open(planned)
            counts.pruned += found.pruned
            pieces = reversed(found.pieces) if self._is_descending else found.pieces
            for piece in pieces:
                self._check_before_read(lease)
                counts.read += piece.group_count
                yield partial(piece.rows.read_with_keys, piece)

        return self._sort_key(file.key_max if self._is_descending else file.key_min), loads

    def _memory_sources(self) -> list[Source]:
        sources: list[Source] = []
        for rows, keys in self._memory.parts(self._plan.key_range):
            nearest = key_at(keys, -1 if self._is_descending else 0)
            load = partial(self._memory_block, rows, keys)
            sources.append((self._sort_key(nearest), partial(list, [load])))
        return sources[::-1] if self._is_descending else sources

    def _memory_block(self, rows: pa.Table, keys: KeyArray) -> Block | None:
        chosen = self._chosen_in_memory(rows, keys)
        if chosen is None:
            return None
        return chosen[0], keys_of(chosen[1], self._view.context.hashes)

    def _sort_key(self, key: bytes) -> SortKey:
        hashes = self._view.context.hashes
        return hashes.one(key) if hashes.is_exact else key

    # Counting

    def _count_in_memory(self) -> int:
        if self._plan.filter.is_trivial:
            return self._memory.live_count(self._plan.key_range)
        parts = self._memory.parts(self._plan.key_range)
        chosen = (self._chosen_in_memory(*part) for part in parts)
        return sum(len(block[1]) for block in chosen if block is not None)

    def _is_whole(self, file: DataFile) -> bool:
        """Whether all keys of a file are wanted."""
        wanted = self._plan.key_range
        return (wanted.start is None or wanted.start <= file.key_min) and (
            wanted.end is None or wanted.end > file.key_max
        )

    def _hidden_count(self, planned: PlannedFile, hidden: Sequence[KeyArray]) -> int:
        """Count the rows of a file that are live by its vector and hidden by memtables."""
        reader = planned.probe.reader
        positions = np.unique(np.concatenate([reader.positions_of(keys) for keys in hidden]))
        kept = self._view.files.access.keep_mask(planned.file)
        return len(positions) if kept is None else int(np.count_nonzero(kept[positions]))


def _now(jobs: Iterable[Callable[[], Result]]) -> Iterator[Result]:
    return (job() for job in jobs)


def _ahead(
    pool: ThreadPoolExecutor, waiting_max: int, jobs: Iterable[Callable[[], Result]]
) -> Iterator[Result]:
    """Run jobs in threads and yield their results in order; few results are held at once."""
    under_way: deque[Future[Result]] = deque()
    for job in jobs:
        under_way.append(pool.submit(job))
        if len(under_way) > waiting_max:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _as_frame(rows: pa.Table, options: dict[str, Any]) -> Frame:
    try:
        return rows.to_pandas(**options)
    except (pa.ArrowException, TypeError, ValueError) as error:
        if not options:
            raise
        raise InvalidArgument(
            f"to_pandas with {listed(list(options))} failed: {error}",
            hint="Pass options of pyarrow.Table.to_pandas",
        ) from error


def _installed(name: str) -> Frame:
    """Load an optional library; raises InvalidArgument when it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidArgument(
            f"{name} is not installed", hint=f"Install it: pip install {name}"
        ) from error
