"""FileRows: the rows of one data file that a scan returns, piece by piece.

1. Find the positions of the keys in the range, through the key index.
2. Split them into pieces, one for each row group, and leave out groups in which no row can match by
   the bounds of their columns. Consecutive groups are one piece while little of them is read.
3. The live rows of a piece are those that no vector marks and whose keys are in no memtable. There
   is one flag per row of the file; a piece without live rows is not read.
4. Read the columns of the filter first, and the others only where some row matches. Text that the
   file stores as a dictionary is compared as one: each value once.

        positions   0        16,384       32,768
        groups      ├───────────┼────────────┼──────┤
        key range         ├──────────────┤
        pieces            ├─────┼────────┤
"""

from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from neve.keys.order import RowKeys
from neve.model.arrow_buffers import Flags
from neve.model.bound_predicate import Always
from neve.model.pruning import ColumnFacts, Match, match
from neve.read.filters import chosen_rows
from neve.read.memory_rows import MemoryRows, keys_of
from neve.read.scan_plan import PlannedFile, ScanPlan
from neve.table.table_view import TableView

BATCH_ROWS: Final = 65_536
"""Rows in memory are passed on in batches of this many."""
_PIECE_BYTES_MAX: Final = 16 << 20
"""About the memory of a piece of several groups, with the columns that are read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some positions of a file, of one row group or of a few small ones."""

    rows: "FileRows"
    start: int
    stop: int
    needs_filter: bool
    group_count: int


@dataclass(frozen=True, slots=True)
class FilePieces:
    """The pieces of a file that may have rows, ascending, and the number of skipped groups."""

    pieces: list[Piece]
    pruned: int


class FileRows:
    """One file in one run of a scan; pieces may be read by many threads."""

    def __init__(
        self,
        planned: PlannedFile,
        plan: ScanPlan,
        view: TableView,
        memory: MemoryRows,
        dictionaries: Collection[str] = (),
    ) -> None:
        """Take a file; columns of text in `dictionaries` may be returned as dictionaries."""
        self.file = planned.probe.file
        self._plan = plan
        self._view = view
        self._needs_filter = planned.needs_filter
        self._reader = planned.probe.reader
        self._mapping = view.context.mapping_from(self.file.schema_id)
        is_same = self._mapping.is_identity
        self._dictionaries = frozenset(dictionaries if is_same else ())
        # An expression of Arrow has functions that do not know dictionaries.
        can_compare = is_same and plan.filter.expression is None
        self._compared = self._reader.dictionary_columns if can_compare else frozenset()
        self._kept = self._live_flags(memory)

    def pieces(self, *, rows_max: int | None) -> FilePieces:
        """Split the file into pieces; several groups are joined only up to this many rows.

        None: as many as fit into the memory of a piece, if the bytes of a row are known.
        """
        start, stop = self._positions()
        starts = self._reader.group_starts
        row_bytes = self._row_bytes() if rows_max is None else None
        if rows_max is None:
            rows_max = BATCH_ROWS if row_bytes is None else _PIECE_BYTES_MAX // max(row_bytes, 1)
        pieces: list[Piece] = []
        group_count = held = 0
        # One iteration per group with keys in the range.
        for group in range(bisect_right(starts, start) - 1, len(starts) - 1):
            first, end = max(start, starts[group]), min(stop, starts[group + 1])
            if first >= end:
                break
            answer = self._match_group(group) if self._needs_filter else Match.ALWAYS
            if answer is Match.NEVER or not self._any_live(first, end):
                continue
            group_count += 1
            piece = Piece(self, first, end, answer is not Match.ALWAYS, 1)
            stored = 0 if row_bytes is not None else self._reader.group_facts.byte_count(group)
            if (
                pieces
                and _is_joined(pieces[-1], piece, rows_max=rows_max)
                and held + stored <= _PIECE_BYTES_MAX
            ):
                last = pieces.pop()
                piece = replace(last, stop=end, group_count=last.group_count + 1)
                held += stored
            else:
                held = stored
            pieces.append(piece)
        return FilePieces(pieces, len(starts) - 1 - group_count)

    @property
    def is_local(self) -> bool:
        """Whether reading the file does not wait for a network."""
        return self._reader.is_local

    def _row_bytes(self) -> int | None:
        """Return the bytes of a row with the columns that are read; None where they vary."""
        schema = self._view.context.schema.arrow_schema
        total = 0
        for name in self._plan.names_read(needs_filter=self._needs_filter):
            kind = schema.field(name).type
            try:
                total += -(-kind.bit_width // 8)
            except ValueError:
                # Arrow says so for types without a width.
                return None
        return total

    def read(self, piece: Piece, *, use_threads: bool) -> pa.Table | None:
        """Return the rows of a piece; None when there are none."""
        chosen = self._choose(piece, self._plan.names, use_threads=use_threads)
        return None if chosen is None else chosen[0]

    def read_with_keys(self, piece: Piece) -> tuple[pa.Table, RowKeys] | None:
        """Return the rows of a piece and their keys; None when there are none."""
        context, names = self._view.context, self._plan.names
        if context.hashes.is_exact:
            chosen = self._choose(piece, names, use_threads=True)
            if chosen is None:
                return None
            rows, kept = chosen
            keys = RowKeys(self._reader.key_index.hashes[piece.start : piece.stop])
            return rows, keys if kept is None else keys.filtered(kept)
        key_names = context.encoder.names
        with_key = (*names, *(each for each in key_names if each not in names))
        chosen = self._choose(piece, with_key, use_threads=True)
        if chosen is None:
            return None
        rows = chosen[0]
        encoded = context.encoder.encode_arrays([rows.column(name) for name in key_names])
        return rows.select(names), keys_of(encoded, context.hashes)

    def count(self, piece: Piece, *, use_threads: bool) -> int:
        """Count the rows of a piece, reading no more than the filter needs."""
        kept = self._kept_in(piece)
        if piece.needs_filter:
            rows = self._filter_columns(piece, use_threads=use_threads)
            return int(np.count_nonzero(self._filter_mask(rows, kept)))
        return piece.stop - piece.start if kept is None else int(np.count_nonzero(kept))

    def _positions(self) -> tuple[int, int]:
        wanted, file = self._plan.key_range, self.file
        start, stop = 0, file.row_count
        if wanted.start is not None and wanted.start > file.key_min:
            start = self._reader.key_bound(wanted.start, side="left")
        if wanted.end is not None and wanted.end <= file.key_max:
            stop = self._reader.key_bound(wanted.end, side="left")
        return start, stop

    def _match_group(self, group: int) -> Match:
        row_filter = self._plan.filter
        predicate = row_filter.predicate
        if isinstance(predicate, Always):
            return Match.SOME
        facts: dict[int, ColumnFacts] = {}
        for field_id in predicate.field_ids:
            known = self._reader.group_facts.of(group, field_id)
            if known is not None:
                facts[field_id] = known
        answer = match(predicate, facts)
        if answer is Match.ALWAYS and row_filter.expression is not None:
            return Match.SOME
        return answer

    def _live_flags(self, memory: MemoryRows) -> Flags | None:
        """One flag per row of the file; None when all are live."""
        kept = self._view.files.access.keep_mask(self.file)
        is_own = False
        wanted = self._plan.key_range
        low = max(self.file.key_min, wanted.start or b"")
        high = self.file.key_max if wanted.end is None else min(self.file.key_max, wanted.end)
        for keys in memory.hidden(low, high):
            hidden = self._reader.positions_of(keys)
            if len(hidden):
                if not is_own:
                    kept = np.ones(self.file.row_count, np.bool_) if kept is None else kept.copy()
                    is_own = True
                assert kept is not None
                kept[hidden] = False
        return kept

    def _any_live(self, start: int, stop: int) -> bool:
        return self._kept is None or bool(self._kept[start:stop].any())

    def _kept_in(self, piece: Piece) -> Flags | None:
        if self._kept is None:
            return None
        kept = self._kept[piece.start : piece.stop]
        return None if kept.all() else kept

    def _choose(
        self, piece: Piece, names: tuple[str, ...], *, use_threads: bool
    ) -> tuple[pa.Table, Flags | None] | None:
        """Return columns of the rows of a piece, and which of its positions they are from."""
        kept = self._kept_in(piece)
        if not piece.needs_filter:
            rows = self._columns(
                names, piece, use_threads=use_threads, dictionaries=self._dictionaries
            )
            return (rows, None) if kept is None else (chosen_rows(rows, kept), kept)
        rows = self._filter_columns(piece, use_threads=use_threads)
        mask = self._filter_mask(rows, kept)
        if not mask.any():
            return None
        held = dict(zip(rows.column_names, rows.columns, strict=True))
        others = tuple(name for name in names if name not in held)
        if others:
            further = self._columns(
                others, piece, use_threads=use_threads, dictionaries=self._dictionaries
            )
            held.update(zip(further.column_names, further.columns, strict=True))
            columns = [held[name] for name in names]
            schema = self._view.context.schema.arrow_schema
            fields = [schema.field(name).with_type(held[name].type) for name in names]
            rows = pa.table(columns, schema=pa.schema(fields))
        else:
            rows = rows.select(names)
        if mask.all():
            return self._written_out(rows), None
        return self._written_out(chosen_rows(rows, mask)), mask

    def _filter_columns(self, piece: Piece, *, use_threads: bool) -> pa.Table:
        names, dictionaries = self._plan.filter.names, self._compared
        return self._columns(names, piece, use_threads=use_threads, dictionaries=dictionaries)

    def _written_out(self, rows: pa.Table) -> pa.Table:
        """Return dictionaries that only the filter wanted as text."""
        schema = self._view.context.schema.arrow_schema
        for name in self._compared - self._dictionaries:
            at = rows.schema.get_field_index(name)
            if at >= 0:
                field = schema.field(name)
                rows = rows.set_column(at, field, rows.column(at).cast(field.type))
        return rows

    def _filter_mask(self, rows: pa.Table, kept: Flags | None) -> Flags:
        mask = self._plan.filter.mask(rows)
        return mask if kept is None else mask & kept

    def _columns(
        self,
        names: tuple[str, ...],
        piece: Piece,
        *,
        use_threads: bool,
        dictionaries: Collection[str],
    ) -> pa.Table:
        """Read all rows of a piece, in the schema of the scan."""
        sources = self._mapping.source_names(names)
        if not sources and names:
            # All of these columns were added after the file was written.
            blank = pa.RecordBatch.from_arrays([pa.nulls(piece.stop - piece.start)], ["blank"])
            return pa.Table.from_batches([self._mapping.batch(blank, names)])
        rows = self._reader.read(
            sources,
            start=piece.start,
            stop=piece.stop,
            use_threads=use_threads,
            dictionaries=dictionaries,
        )
        return self._mapping.table(rows, names) if names else rows


def _is_joined(last: Piece, piece: Piece, *, rows_max: int) -> bool:
    """Return whether a group can join the piece before it: small and adjacent."""
    return (
        last.stop == piece.start
        and last.needs_filter is piece.needs_filter
        and piece.stop - last.start <= rows_max
    )
