"""TableView: a table at one moment: its newest rows in memory and the files of a Version.

Both are one object, so that a reader misses no row between them: a flush replaces the whole view. A
reader takes the view first and the sequence number after it.

A key is looked up in the memtables, newest first, and then in the files. The first entry counts,
also when it is a delete. Only for a partially written row that was merged before another commit,
the search continues for the other columns.

A TableView has every row that is stored. Where rows expire, readers and new writes take the
`UnexpiredView` of a moment instead. Partially written rows are merged again with stored rows, as
they were merged before: when the write was decided, the row below it had not expired.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.keys.arrays import key_at
from neve.keys.columns import KeyArray
from neve.keys.key_hashes import Hashes, KeyHashes
from neve.memtable.batch_journal import KeyedBatch
from neve.memtable.found_row import DELETED, BatchRow, GivenColumns
from neve.memtable.memtable import Memtable
from neve.model.array_fit import empty_rows
from neve.model.arrow_buffers import flag_array, one_batch, position_array
from neve.model.row_rules import Cutoff, cutoff_at
from neve.model.write_batch import SEQUENCE_MAX
from neve.sstable.row_cells import RowCells
from neve.sstable.row_gather import Gather
from neve.table.file_set import FileProbe, FileSet
from neve.table.partial_merge import Places, merged_on, merged_row
from neve.table.table_context import TableContext

Row: TypeAlias = dict[str, Any]
"""A row by column names; the table's schema defines the types of its values."""


class TableView:
    """Memtables and files, taken together; immutable, except for new rows in the first one."""

    __slots__ = (
        "_decode",
        "_find_row",
        "_hash",
        "_schema_id",
        "context",
        "expires",
        "files",
        "memtables",
        "others_version",
        "version",
    )

    def __init__(
        self,
        memtables: tuple[Memtable, ...],
        files: FileSet,
        context: TableContext,
        *,
        others_version: int | None = None,
    ) -> None:
        self.memtables = memtables
        """Newest first."""
        self.version = files.version.number
        """Number of the Version whose files these are."""
        self.others_version = self.version if others_version is None else others_version
        """The last Version that may have rows of another writer."""
        self.files = files
        self.context = context
        self.expires = context.schema.rules.ttl is not None
        """Whether rows expire: then readers use `as_of`."""
        self._schema_id = context.schema.schema_id
        self._decode = context.codec.decode
        self._hash = context.hashes.one
        self._find_row = files.find_row

    def dictionary_columns(self) -> frozenset[str]:
        """Return the columns of text that its files store as dictionaries."""
        schema = self.context.schema.arrow_schema
        names = {each.name for each in schema if pa.types.is_string(each.type)}
        return self.files.dictionary_columns & names

    @property
    def cutoff(self) -> Cutoff | None:
        """Which rows this leaves out because they have expired; None for no row."""
        return None

    def as_of(self, now_ms: int) -> "TableView":
        """Return the view as readers see it at a time: without the rows that have expired."""
        cutoff = cutoff_at(self.context.schema, now_ms) if self.expires else None
        return self if cutoff is None else UnexpiredView(self, cutoff)

    def pin_memory(self, sequence: int) -> bool:
        """Keep the rows in memory as of a sequence; False, and none kept, when some are gone."""
        for place, memtable in enumerate(self.memtables):
            if not memtable.pin(sequence):
                for each in self.memtables[:place]:
                    each.unpin(sequence)
                return False
        return True

    def unpin_memory(self, sequence: int) -> None:
        """End what `pin_memory` began."""
        for memtable in self.memtables:
            memtable.unpin(sequence)

    def get(self, key: bytes) -> Row | None:
        """Return the newest row of a key; None when there is none."""
        return self.get_at(key, SEQUENCE_MAX)

    def get_at(self, key: bytes, sequence: int) -> Row | None:
        """Return the row of a key as it was when `sequence` was the last write."""
        for memtable in self.memtables:
            found = memtable.get_at(key, sequence)
            if found is not None:
                if type(found) is bytes:
                    return self._decode(found)
                if found is DELETED:
                    return None
                assert isinstance(found, BatchRow)
                row = self._row_of_batch(memtable, found)
                if self.is_stale(found.given):
                    if memtable.schema.rules.merge:
                        return self._folded_row(key, sequence)
                    base = self.below(memtable).get_at(key, sequence)
                    return merged_row(row, base, found.given, self.context.schema)
                return row
        hit = self._find_row(key, self._hash(key))
        if hit is None:
            return None
        probe, row = hit
        schema_id = probe.schema_id
        return (
            row if schema_id == self._schema_id else self.context.mapping_from(schema_id).row(row)
        )

    def is_stale(self, given: GivenColumns | None) -> TypeGuard[GivenColumns]:
        """Return whether others may have committed since a row of a partial write was merged."""
        return given is not None and given.version < self.others_version

    def below(self, memtable: Memtable) -> "TableView":
        """Return the view without a memtable and all newer ones."""
        older = self.memtables[self.memtables.index(memtable) + 1 :]
        return TableView(older, self.files, self.context, others_version=self.others_version)

    def get_many(
        self, keys: KeyArray, sequence: int, *, columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, Places]:
        """Return the rows of keys in any order, and for each the place of its key."""
        schema = self.context.schema.arrow_schema
        search = _Search(keys, schema.names if columns is None else list(columns))
        for memtable in self.memtables:
            if not memtable.is_empty and len(search.places):
                self._search_memtable(search, memtable, sequence)
        if len(search.places):
            self._search_files(search)
        return search.result(schema)

    def _search_memtable(self, search: "_Search", memtable: Memtable, sequence: int) -> None:
        asked = search.places
        found = memtable.find_many(
            search.keys
            if len(asked) == len(search.keys)
            else search.keys.take(position_array(asked)),
            sequence,
        )
        is_known = found.positions >= 0
        values = [(place, row) for place, row in found.single.items() if row is not DELETED]
        if values:
            decoded = self.context.codec.decode_many([row for _, row in values])
            places = asked[np.array([place for place, _ in values])]
            search.add(pa.Table.from_batches([decoded]).select(search.names), places)
        hits = np.flatnonzero(is_known)
        for batch, own in found.by_batch(found.positions[hits]):
            if batch.rows is not None:
                rows = found.positions[hits[own]] - batch.first_position
                self._search_batch(search, memtable, batch, rows, asked[hits[own]], sequence)
        is_known[list(found.single)] = True
        search.places = asked[~is_known]

    def _search_batch(  # noqa: PLR0917 - the parts of one search
        self,
        search: "_Search",
        memtable: Memtable,
        batch: KeyedBatch,
        rows: Places,
        places: Places,
        sequence: int,
    ) -> None:
        """Add rows of a batch in memory to a search."""
        assert batch.rows is not None
        mapping = self.context.mapping_from(memtable.schema.schema_id)
        stale: dict[GivenColumns, list[int]] = {}
        if batch.given is not None:
            # A loop over the rows of partial writes.
            for at, row in enumerate(rows.tolist()):
                given = batch.given[row]
                if self.is_stale(given):
                    stale.setdefault(given, []).append(at)
        is_whole = np.ones(len(rows), np.bool_)
        for given, found in stale.items():
            is_whole[found] = False
            merged = merged_on(
                self.below(memtable),
                sequence,
                pa.Table.from_batches(
                    [mapping.batch(batch.rows.take(position_array(rows[found])))]
                ),
                search.keys.take(position_array(places[found])),
                {given: np.arange(len(found))},
                schema=self.context.schema,
                rules=memtable.schema.rules,
            )
            search.add(merged.select(search.names), places[found])
        if is_whole.any():
            # At least one, which knows how many rows there are.
            names = mapping.source_names(search.names) or batch.rows.schema.names[:1]
            source = batch.rows.select(names)
            taken = mapping.table(
                pa.Table.from_batches([source.take(position_array(rows[is_whole]))]), search.names
            )
            search.add(taken, places[is_whole])

    def _folded_row(self, key: bytes, sequence: int) -> Row:
        """Return a row whose columns are folded into those below it."""
        width = self.context.encoder.width
        keys = pa.array([key], pa.binary() if width is None else pa.binary(width))
        rows, _ = self.get_many(cast("KeyArray", keys), sequence)
        return RowCells(self.context.schema).bind(one_batch(rows))(0)

    def _search_files(self, search: "_Search") -> None:
        places, is_exact = search.places, self.context.hashes.is_exact
        keys = (
            search.keys
            if len(places) == len(search.keys)
            else search.keys.take(position_array(places))
        )
        hashes = self.context.hashes.of(keys)
        # Ascending, so that the search walks each index once, and mostly the rows as well.
        order = np.argsort(hashes)
        hashes, places = hashes[order], places[order]
        bounds = (key_at(keys, int(order[0])), key_at(keys, int(order[-1]))) if is_exact else None
        if not is_exact or self.files.is_divided:
            keys = keys.take(position_array(order))
        open_places = np.ones(len(places), np.bool_)
        schema = self.context.schema
        # Rows of all files that have the table's columns are taken together.
        together = Gather(pa.schema([schema.arrow_schema.field(name) for name in search.names]))
        found: list[Places] = []
        for probe, wanted in self.files.searches(keys, bounds=bounds):
            # A key has one live row: found keys are not searched again.
            within = _within(hashes, probe, self.context.hashes) if is_exact else None
            asked = _still_open(wanted, open_places, within)
            if asked is not None and not len(asked):
                continue
            if asked is None:
                hits, positions = probe.reader.find_many(keys, hashes)
            else:
                asked_keys = keys if is_exact else keys.take(position_array(asked))
                hits, positions = probe.reader.find_many(asked_keys, hashes[asked])
                hits = asked[hits]
            if not len(hits):
                continue
            mask = self.files.access.keep_mask(probe.file)
            if mask is not None:
                live = mask[positions]
                hits, positions = hits[live], positions[live]
            if len(hits):
                open_places[hits] = False
                if not is_exact:
                    by_position = np.argsort(positions)
                    hits, positions = hits[by_position], positions[by_position]
                if probe.file.schema_id == schema.schema_id and search.names:
                    probe.reader.gather(positions, together)
                    found.append(places[hits])
                    continue
                mapping = self.context.mapping_from(probe.file.schema_id)
                rows = probe.reader.take(positions, mapping.source_names(search.names))
                search.add(mapping.table(rows, search.names), places[hits])
        if found:
            search.add(*together.result_by(np.concatenate(found)))

    def _row_of_batch(self, memtable: Memtable, found: BatchRow) -> Row:
        batch = found.batch
        read_row = memtable.row_readers.get(id(batch))
        if read_row is None:
            # The memtable keeps it as long as the batch; made twice, it is the same.
            read_row = RowCells(memtable.schema).bind(batch)
            memtable.row_readers[id(batch)] = read_row
        row = read_row(found.row)
        if memtable.schema.schema_id == self.context.schema.schema_id:
            return row
        return self.context.mapping_from(memtable.schema.schema_id).row(row)


class UnexpiredView(TableView):
    """A view without the rows that have expired at one moment."""

    __slots__ = ("_cutoff",)

    def __init__(self, stored: TableView, cutoff: Cutoff) -> None:
        super().__init__(
            stored.memtables, stored.files, stored.context, others_version=stored.others_version
        )
        self._cutoff = cutoff

    @property
    def cutoff(self) -> Cutoff:
        """Which rows this leaves out because they have expired."""
        return self._cutoff

    def get_at(self, key: bytes, sequence: int) -> Row | None:
        """Return the row of a key as it was when `sequence` was the last write."""
        row = super().get_at(key, sequence)
        return None if row is None or self._cutoff.has_expired(row) else row

    def get_many(
        self, keys: KeyArray, sequence: int, *, columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, Places]:
        """Return the rows of keys in any order, and for each the place of its key."""
        asked, time = columns, self._cutoff.column.name
        if columns is not None and time not in columns:
            columns = [*columns, time]
        rows, places = super().get_many(keys, sequence, columns=columns)
        expired = self._cutoff.expired_flags(rows)
        if expired.any():
            rows, places = rows.filter(flag_array(~expired)), places[~expired]
        return rows if columns is asked or asked is None else rows.select(list(asked)), places


class _Search:
    """Rows found so far for some keys, and the places of the keys that are still open."""

    __slots__ = ("_found", "_tables", "keys", "names", "places")

    def __init__(self, keys: KeyArray, names: Sequence[str]) -> None:
        self.keys = keys
        self.names = list(names)
        self.places: Places = np.arange(len(keys), dtype=np.int64)
        self._tables: list[pa.Table] = []
        self._found: list[Places] = []

    def add(self, rows: pa.Table, places: Places) -> None:
        self._tables.append(rows)
        self._found.append(places)

    def result(self, schema: pa.Schema) -> tuple[pa.Table, Places]:
        if not self._tables:
            fields = [schema.field(name) for name in self.names]
            return empty_rows(pa.schema(fields)), np.empty(0, dtype=np.int64)
        if len(self._tables) == 1:
            return self._tables[0], self._found[0]
        return pa.concat_tables(self._tables), np.concatenate(self._found)


def _within(hashes: Hashes, probe: FileProbe, form: KeyHashes) -> slice:
    """Return the places of the hashes, which are exact and ascend, between the bounds of a file."""
    bounds = np.array([form.one(probe.key_min), form.one(probe.key_max)], np.uint64)
    return slice(
        int(hashes.searchsorted(bounds[0])), int(hashes.searchsorted(bounds[1], side="right"))
    )


def _still_open(
    wanted: Places | None, open_places: npt.NDArray[np.bool_], within: slice | None
) -> Places | None:
    """Return the wanted places where nothing was found yet; None for all of them.

    Only those within a slice, where one is given: then wanted ones are looked up as they are.
    """
    if wanted is not None:
        return wanted[open_places[wanted]]
    if within is None or within == slice(0, len(open_places)):
        return None if open_places.all() else np.flatnonzero(open_places)
    first: int = within.start
    return np.flatnonzero(open_places[within]) + first
