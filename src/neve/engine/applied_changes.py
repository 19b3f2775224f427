"""Changes of other systems, as one write: upserts and deletes together, in their own order.

    op                                              what happens to the row of the key
    c  r  i   insert  update  upsert  u   +I  +U    it is written
    d         delete                      -D        it is deleted
    -U                                              nothing: +U follows with the new row

1. Read the operation of each row, and refuse one that is unknown before anything is written.
2. Check the rows that are written as `upsert` does, and of the others the key.
3. Of several changes of one key keep the one with the greatest order values, and of equal ones the
   last.
4. Log what is left as one batch, with the number that an application gives it.

ENGINE-16  A batch of an application and its number are one record of the log: both are there after
           a crash, or neither. The flush that commits the rows commits the number, too.
ENGINE-17  A batch whose number is the last one is acknowledged and skipped; one before it is
           refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.engine.row_input import Rows, arrow_batches, batches_of
from neve.engine.table_engine import TableEngine
from neve.engine.write_path import Decide, Decided, PreparedBatch, WritePath, key_batch
from neve.errors import InvalidArgument, Phrase, SchemaMismatch, Wording
from neve.manifest.table_head import HeadChange
from neve.model.array_fit import fit_column, nulls
from neve.model.arrow_buffers import Positions, one_batch
from neve.model.arrow_types import value_hint
from neve.model.display import listed, shown
from neve.model.exact_columns import exact_batch
from neve.model.scalar_values import Unfit, scalar_form
from neve.model.schema import Column, TableSchema
from neve.model.suggestions import known_names_hint
from neve.table.row_changes import RowChanges, Winners
from neve.table.row_order import Orders, RowOrder, joined_orders, without_order

WRITE: Final = "upsert"
DELETE: Final = "delete"
SKIP: Final = "skip"
OPERATIONS: Final = {
    **dict.fromkeys(("c", "r", "u", "i", "insert", "update", "upsert", "+i", "+u"), WRITE),
    **dict.fromkeys(("d", "delete", "-d"), DELETE),
    "-u": SKIP,
}
"""What an operation does, by its name in small letters."""
KNOWN_OPERATIONS: Final = (
    "Known are c, r, u, d, i, insert, update, upsert, delete, +I, +U, -U and -D"
)
_MEANINGS: Final = (WRITE, DELETE, SKIP)
_BATCH_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """How the rows of a change feed say what they mean."""

    op: str = "op"
    """The column with the operation."""
    order_by: Sequence[str] = ()
    """The columns that decide which change of a key is newest; without any, the last one is."""
    operations: Mapping[str, str] | None = None
    """Operations besides the usual ones: their name in small letters, then what they mean."""

    @classmethod
    def of(
        cls, op: str, order_by: str | Sequence[str] | None, operations: Mapping[str, str] | None
    ) -> "ChangeOptions":
        """Return options as calls take them; raises InvalidArgument."""
        if order_by is not None and not isinstance(order_by, str | Sequence):
            raise InvalidArgument(
                f"order_by is {type(order_by).__name__}", hint="Name a column, or list several"
            )
        if operations is not None and not isinstance(operations, Mapping):
            raise InvalidArgument(
                f"operations is {type(operations).__name__}",
                hint="Pass a dict: the name of an operation, then upsert, delete or skip",
            )
        ordering = (order_by,) if isinstance(order_by, str) else tuple(order_by or ())
        named = None if operations is None else dict(operations)
        return cls(op=op, order_by=ordering, operations=named)

    def __post_init__(self) -> None:
        for name in (self.op, *self.order_by):
            if not isinstance(name, str):
                raise InvalidArgument(
                    f"a column is given as {type(name).__name__}", hint="Pass its name"
                )
        meanings: dict[str, str] = {}
        for name, meaning in (self.operations or {}).items():
            if meaning not in _MEANINGS:
                raise InvalidArgument(
                    f"operation {shown(name)} means {shown(meaning)}",
                    hint=f"Map it to one of {', '.join(_MEANINGS)}",
                )
            if not isinstance(name, str):
                raise InvalidArgument(
                    f"an operation is given as {type(name).__name__}", hint="Pass its name"
                )
            if meanings.setdefault(name.lower(), meaning) != meaning:
                raise InvalidArgument(
                    f"operation {shown(name)} has two meanings, in capital and small letters",
                    hint="Names of operations are the same in capital and small letters",
                )
        if self.operations is not None:
            object.__setattr__(self, "operations", meanings)

    def on(self, schema: TableSchema) -> "ChangeOptions":
        """Return the options for a table: its own order columns, where it has any."""
        names = schema.order_names
        if not names or self.order_by == names:
            return self
        if self.order_by:
            raise InvalidArgument(
                f"the table orders changes by {listed(names)}, not by {listed(self.order_by)}",
                hint=Wording(Phrase.ORDER_OF_TABLE),
            )
        return replace(self, order_by=names)

    def meaning(self, operation: object) -> str | None:
        """Return what an operation does; None for one that is unknown."""
        if not isinstance(operation, str):
            return None
        name = operation.lower()
        return (self.operations or {}).get(name) or OPERATIONS.get(name)

    def meanings(self, column: "pa.ChunkedArray[Any]") -> "npt.NDArray[np.object_]":
        """Return what each operation of a column does; None for one that is unknown."""
        found = [np.empty(0, np.object_)]
        for chunk in column.chunks:
            encoded = chunk.dictionary_encode()
            # The last place is for NULL.
            known = [*map(self.meaning, encoded.dictionary.to_pylist()), None]
            codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            found.append(np.array(known, np.object_)[codes])
        return np.concatenate(found)

    def is_feed_only(self, name: str, schema: TableSchema) -> bool:
        """Whether a column only describes the change, and is not stored."""
        return name not in schema and (name == self.op or name in self.order_by)


Convert = Callable[[Any], object]
"""Makes a value for a column out of one that is not NULL."""


class ChangeRow(dict[str, object]):
    """A change of another system: the columns of its row, its operation, and where it came from.

    As a dict it has all three. Where names are the same, the dict has the row's own value, and
    `apply` orders by the position.
    """

    def __init__(
        self,
        row: Mapping[str, object],
        operation: tuple[str, str],
        positions: Mapping[str, object],
    ) -> None:
        """Take the row's own columns, the name and value of the operation, and the positions."""
        super().__init__({**positions, operation[0]: operation[1], **row})
        self.row = row
        self.operation = operation[1]
        self.positions = positions

    def converters(self, schema: TableSchema) -> Mapping[str, Convert]:
        """Return how values of the feed become values of a table, by column."""
        del schema
        return {}

    def stored(self, options: ChangeOptions, schema: TableSchema) -> Mapping[str, object]:
        """Return the columns that the table gets: the row's own, and an order column it has."""
        positions = {
            name: self.positions[name]
            for name in options.order_by
            if name in self.positions and name in schema
        }
        if schema.rules.order_by:
            return {**self.row, **positions}  # they decide later, too
        return {**positions, **self.row}


class UnknownOperation(InvalidArgument):
    """An operation without a meaning; `row` is the first change that has one, counted from 0."""

    def __init__(self, operation: object, *, row: int, more: int) -> None:
        others = f" and {more:,} more" if more else ""
        error = unknown_operation(operation, f"change {row:,}{others}")
        super().__init__(error.message, hint=error.hint)
        self.operation = operation
        self.row = row
        self.more = more


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOutcome:
    """What a batch of changes did."""

    sequence: int
    """The last sequence number of the table."""
    rows_written: int = 0
    rows_deleted: int = 0
    """Keys that the batch deletes, whether they had a row or not."""
    ignored: int = 0
    """Changes that were older than what the table had."""
    tied: int = 0
    """Rows replaced by a later one of the call with the same order and other values."""
    is_repeat: bool = False
    """Whether this batch of the application was applied before, so that nothing was written."""


def application_of(app_id: str | None, batch: int | None) -> tuple[str, int] | None:
    """Return a batch of an application as calls take it; raises InvalidArgument for half of one."""
    if (app_id is None) != (batch is None):
        raise InvalidArgument(
            "app_id and batch belong together", hint="Pass both, or neither of them"
        )
    return None if app_id is None or batch is None else (app_id, batch)


class AppliedChanges:
    """Applies change feeds to one table; safe for many threads."""

    def __init__(self, engine: TableEngine) -> None:
        self._engine = engine

    def apply(
        self, changes: Rows, options: ChangeOptions, application: tuple[str, int] | None
    ) -> ApplyOutcome:
        """Write the changes as one batch."""
        engine = self._engine
        writer = engine.writer
        if application is not None:
            _check_batch(*application)
            if self._is_done(*application):
                return ApplyOutcome(sequence=engine.current.sequence, is_repeat=True)
        path = writer.path
        feed = changes_in(changes, options.on(path.context.schema), path, application)
        is_repeat = False
        kept: Winners | None = None

        def make() -> PreparedBatch | None:
            nonlocal kept
            kept = path.winners(feed)
            return path.write_of(kept, application)

        # Where nothing depends on what is there, other writes need not wait for it.
        ready = make() if path.is_plain else None

        def decide() -> PreparedBatch | None:
            nonlocal is_repeat
            is_repeat = application is not None and self._is_done(*application)
            if is_repeat:
                return None
            return make() if ready is None else ready

        write: Decide | PreparedBatch = decide
        if application is None:  # the number of a batch depends on every write before it
            write = Decided(decide, feed.all_keys) if ready is None else ready
        sequence = engine.once_more(lambda: writer.write(write))
        if is_repeat or kept is None:
            return ApplyOutcome(sequence=engine.current.sequence, is_repeat=is_repeat)
        return ApplyOutcome(
            sequence=engine.current.sequence if sequence is None else sequence,
            rows_written=kept.rows.num_rows,
            rows_deleted=len(kept.deleted),
            ignored=kept.ignored,
            tied=kept.tied,
        )

    def last_batch(self, application: str) -> int | None:
        """Return the last batch of an application, in memory or committed."""
        HeadChange(application=(application, 0))  # refuses what cannot be a name
        in_memory = [
            memtable.applied[application]
            for memtable in self._engine.current.view.memtables
            if application in memtable.applied
        ]
        # A job may have committed a later batch than those in memory.
        versions = self._engine.parts.versions
        committed = versions.last_batch_in(versions.store.read(), application)
        return max(in_memory if committed is None else [*in_memory, committed], default=None)

    def _is_done(self, application: str, batch: int) -> bool:
        last = self.last_batch(application)
        if last is None or batch > last:
            return False
        if batch == last:
            return True
        raise InvalidArgument(
            f"batch {batch:,} of {application!a} is older than batch {last:,}, which is already "
            "applied",
            path=self._engine.parts.paths.root,
            hint=Wording(Phrase.COUNT_BATCHES_UP, last=last),
        )


def changes_in(
    changes: Rows,
    options: ChangeOptions,
    path: WritePath,
    application: tuple[str, int] | None = None,
) -> RowChanges:
    """Return all changes of a feed, checked, with their orders; raises what is wrong."""
    order = path.order
    read = _ArrowChanges if _is_arrow(changes) else _DictChanges
    feed = read(changes, options, path)
    written, deleted = feed.written(), feed.deleted()
    path.check_partition(written)
    arrival = np.concatenate(feed.places)
    by_age = np.argsort(arrival, kind="stable")
    orders: Orders | None = None
    if order is not None:
        gone = _ordered_deletes(feed.order(), feed.places, order)
        own = order.of_changes(written, feed.places[0])
        orders = joined_orders([own, order.of_changes(gone, feed.places[1])])
    elif options.order_by and len(arrival):
        by_age = np.lexsort((arrival, _ranks(feed.order())))
    return RowChanges(
        rows=written,
        keys=path.encode_keys(written),
        deleted=path.encode_keys(deleted),
        orders=orders,
        by_age=by_age,
        application=application,
    )


def _ordered_deletes(
    order: Sequence["pa.Array[Any]"], places: tuple[Positions, Positions], wanted: RowOrder
) -> pa.RecordBatch:
    """Return the order columns of deletes, in the types of the table."""
    fields = [wanted.schema.column(name).arrow_field for name in wanted.names]
    written, deleted = places
    given = [column.slice(len(written)) for column in order] or [
        nulls(0, each.type) for each in fields
    ]
    with _counted_in(deleted):
        arrays = [fit_column(column, each) for column, each in zip(given, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


class _DictChanges:
    """Changes that are given as dicts: each may have its own columns."""

    def __init__(self, changes: Rows, options: ChangeOptions, path: WritePath) -> None:
        self._path = path
        self._options = options
        self._schema = path.context.schema
        if isinstance(changes, Mapping):
            changes = [changes]
        if isinstance(changes, str | bytes) or not isinstance(changes, Iterable):
            next(batches_of(changes, path.context.codec))  # it says what is accepted
        given = list(cast("Iterable[Mapping[str, object]]", changes))
        meanings: list[str | None] = []
        for place, row in enumerate(given):
            if not isinstance(row, Mapping):
                raise InvalidArgument(
                    f"change {place:,} is {type(row).__name__}", hint="Pass dicts, or Arrow"
                )
            if options.op not in row:
                raise without_column(options.op, "operation", place)
            meanings.append(options.meaning(_operation(row, options)))
        _refuse_unknown(meanings, [_operation(row, options) for row in given])
        self._given = given
        kinds = {type(row): row for row in given if isinstance(row, ChangeRow)}
        self._converters = {kind: row.converters(self._schema) for kind, row in kinds.items()}
        self._stored = self._stored_columns(given)
        self.places = _places(meanings)

    def _stored_columns(self, given: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
        """Return each change without the columns that only describe it."""
        options, schema = self._options, self._schema
        dropped = {name for name in (options.op, *options.order_by) if name not in schema}
        found: list[Mapping[str, object]] = []
        # A loop over dicts: each may have its own columns.
        for row in given:
            if isinstance(row, ChangeRow):
                found.append(_converted(row.stored(options, schema), self._converters[type(row)]))
            else:
                found.append({name: row[name] for name in row if name not in dropped})
        return found

    def written(self) -> pa.RecordBatch:
        """Return the rows that are written, in the table's schema."""
        codec = self._path.context.codec
        places = self.places[0].tolist()
        exact = exact_batch([self._stored[place] for place in places], codec.schema)
        if exact is not None:
            return exact
        rows: list[bytes] = []
        for place in places:
            try:
                rows.append(codec.encode(self._stored[place]))
            except SchemaMismatch as error:
                error.row = place
                raise
        return codec.decode_many(rows)

    def deleted(self) -> pa.RecordBatch:
        """Return the key columns of the rows that are deleted."""
        names = self._path.context.encoder.names
        keys = []
        for place in self.places[1].tolist():
            row = self._stored[place]
            for name in names:
                if name not in row:
                    raise without_column(name, "key", place)
            keys.append(tuple(row[name] for name in names))
        single = len(names) == 1
        context = self._path.context
        try:
            return key_batch([key[0] if single else key for key in keys], context)
        except SchemaMismatch:
            for place, key in zip(self.places[1].tolist(), keys, strict=True):
                try:
                    context.encode_key(key)
                except SchemaMismatch as error:
                    error.row = place
                    raise
            raise

    def order(self) -> list["pa.Array[Any]"]:
        """Return the order columns of the changes that are written, then of those deleted."""
        found: list[pa.Array[Any]] = []
        kept, back = _kept(self.places)
        for name in self._options.order_by if len(kept) else ():
            values = [self._order_value(self._given[place], name) for place in kept.tolist()]
            for place, value in zip(kept.tolist(), values, strict=True):
                # NaN is what a frame without a value has.
                if value is None or value != value:  # noqa: PLR0124
                    raise without_order(name, "a change", row=place)
            with _counted_in(kept):
                found.append(_order_array(values, name, self._schema).take(back))
        return found

    def _order_value(self, row: Mapping[str, object], name: str) -> object:
        """Return what orders a change: a value as the table's column of that name has it."""
        if not isinstance(row, ChangeRow):
            return row.get(name)
        value = row.positions.get(name, row.get(name))
        convert = self._converters[type(row)].get(name)
        return value if value is None or convert is None else convert(value)


class _ArrowChanges:
    """Changes that are given as Arrow: all have the same columns."""

    def __init__(self, changes: Rows, options: ChangeOptions, path: WritePath) -> None:
        self._path = path
        self._options = options
        batches = arrow_batches(changes)
        assert batches is not None, "the caller looked"
        held = list(batches)
        schema = path.context.schema
        self._schema = schema
        self._rows = _plain_columns(pa.Table.from_batches(held)) if held else pa.table({})
        names = self._rows.column_names
        if not held:
            self.places = _places([])
            return
        if options.op not in names:
            raise without_column(options.op, "operation", None, names)
        column = self._rows.column(options.op)
        if not _is_text(column.type):
            raise InvalidArgument(
                f"operation column {shown(options.op)} is {column.type}, not text",
                hint=KNOWN_OPERATIONS,
            )
        meanings = options.meanings(column).tolist()
        _refuse_unknown(meanings, cast("Sequence[object]", column))
        self.places = _places(meanings)

    def written(self) -> pa.RecordBatch:
        """Return the rows that are written, in the table's schema."""
        names = [
            name
            for name in self._rows.column_names
            if not self._options.is_feed_only(name, self._schema)
        ]
        rows = self._rows.select(names).take(self.places[0])
        if not rows.num_rows:
            return one_batch(self._schema.arrow_schema.empty_table())
        with _counted_in(self.places[0]):
            batches = list(batches_of(rows.combine_chunks(), self._path.context.codec))
        return one_batch(pa.Table.from_batches(batches, self._schema.arrow_schema))

    def deleted(self) -> pa.RecordBatch:
        """Return the key columns of the rows that are deleted."""
        if not len(self.places[1]):
            return key_batch([], self._path.context)
        with _counted_in(self.places[1]):
            return key_batch(self._rows.take(self.places[1]), self._path.context)

    def order(self) -> list["pa.Array[Any]"]:
        """Return the order columns of the changes that are written, then of those deleted."""
        found = []
        kept, back = _kept(self.places)
        for name in self._options.order_by if len(kept) else ():
            if name not in self._rows.column_names:
                raise without_column(name, "order", None, self._rows.column_names)
            column = self._rows.column(name).combine_chunks().take(kept)
            blank = np.flatnonzero(column.is_null(nan_is_null=True))
            if len(blank):
                raise without_order(name, "a change", row=int(kept[blank[0]]))
            found.append(column.take(back))
        return found


def _ranks(order: Sequence["pa.Array[Any]"]) -> Positions:
    """Return how many smaller values there are of each, counted once."""
    # Arrow sorts the bytes of UUIDs, but not UUIDs.
    order = [each.storage if isinstance(each, pa.ExtensionArray) else each for each in order]
    names = [str(number) for number in range(len(order))]
    table = pa.table(dict(zip(names, order, strict=True)))
    try:
        by_value = pc.sort_indices(table, [(name, "ascending") for name in names]).to_numpy()
        is_new = np.zeros(len(by_value), np.bool_)
        for column in order:
            ordered = column.take(pa.array(by_value))
            if len(ordered):
                differs = pc.not_equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1))
                is_new[1:] |= differs.to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        raise InvalidArgument(
            f"the order columns cannot be compared: {error}",
            hint="Order by numbers, text, dates or timestamps",
        ) from error
    ranks = np.empty(len(by_value), np.int64)
    ranks[by_value] = np.cumsum(is_new)
    return ranks


def _order_array(values: list[object], name: str, schema: TableSchema) -> "pa.Array[Any]":
    """Return values of an order column: in the type of the table's column, if it has one."""
    if name in schema:
        return _fitted(values, schema.column(name))
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(
            f"the values of order column {shown(name)} cannot be compared: {error}",
            hint="Give all of them one type",
        ) from error


def _fitted(values: Sequence[object], column: Column) -> "pa.Array[Any]":
    """Return values as a column has them, checked as those of rows; raises SchemaMismatch."""
    to_value = scalar_form(column.type).canonical
    found: list[object] = []
    for place, value in enumerate(values):
        try:
            found.append(to_value(value))
        except Unfit as unfit:
            raise SchemaMismatch(
                f"column {shown(column.name)}: {unfit.reason}",
                column=column.name,
                row=place,
                hint=value_hint(column.type),
            ) from unfit
    return pa.array(found, column.type)


def _places(meanings: Sequence[str | None]) -> tuple[Positions, Positions]:
    """Return where the rows are that are written, and those that are deleted."""
    kinds = np.array(meanings, dtype=object)
    written: Positions = np.flatnonzero(kinds == WRITE).astype(np.int64)
    deleted: Positions = np.flatnonzero(kinds == DELETE).astype(np.int64)
    return written, deleted


def _kept(places: tuple[Positions, Positions]) -> tuple[Positions, Positions]:
    """Return where all changes are that are not skipped, and how these become `places` again."""
    arrival = np.concatenate(places)
    kept = np.sort(arrival)
    return kept, np.searchsorted(kept, arrival).astype(np.int64)


def _is_arrow(changes: Rows) -> bool:
    return (
        isinstance(changes, pa.RecordBatch | pa.Table | pa.RecordBatchReader)
        or hasattr(changes, "__arrow_c_stream__")
        or hasattr(changes, "__arrow_c_array__")
    )


def _refuse_unknown(meanings: Sequence[str | None], operations: Sequence[object]) -> None:
    if None not in meanings:
        return
    unknown = [place for place, meaning in enumerate(meanings) if meaning is None]
    first = operations[unknown[0]]
    value = first.as_py() if isinstance(first, pa.Scalar) else first
    raise UnknownOperation(value, row=unknown[0], more=len(unknown) - 1)


def _converted(
    row: Mapping[str, object], converters: Mapping[str, Convert]
) -> Mapping[str, object]:
    return {
        name: converters[name](value) if value is not None and name in converters else value
        for name, value in row.items()
    }


def _operation(row: Mapping[str, object], options: ChangeOptions) -> object:
    return row.operation if isinstance(row, ChangeRow) else row[options.op]


def _plain_columns(rows: pa.Table) -> pa.Table:
    """Return columns in forms that can be taken from and compared; raises SchemaMismatch.

    Text and bytes of other libraries may be views, dictionaries or runs.
    """
    twice = [name for name in rows.column_names if rows.column_names.count(name) > 1]
    if twice:
        raise SchemaMismatch(
            f"the changes have several columns {shown(twice[0])}",
            column=twice[0],
            hint="Name each column once",
        )
    for place, field in enumerate(rows.schema):
        plain = _plain_type(field.type)
        if plain != field.type:
            chunks = [_plain_array(chunk, plain) for chunk in rows.column(place).chunks]
            column = cast("Any", pa.chunked_array)(chunks, plain)  # of any type
            rows = rows.set_column(place, field.with_type(plain), column)
    return rows


def _plain_array(column: "pa.Array[Any]", plain: pa.DataType) -> "pa.Array[Any]":
    if isinstance(column, pa.RunEndEncodedArray):
        column = pc.call_function("run_end_decode", [column])
    if isinstance(column, pa.DictionaryArray):
        # Arrow takes from no views, so the few values are cast first.
        values = _plain_array(column.dictionary, plain)
        return values.take(column.indices)
    return column.cast(plain)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
        return _plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


@contextmanager
def _counted_in(places: Positions) -> Iterator[None]:
    """Count the row of an error among all changes, not among those of one kind."""
    try:
        yield
    except SchemaMismatch as error:
        if error.row is not None:
            error.row = int(places[error.row])
        raise


def unknown_operation(value: object, change: str) -> InvalidArgument:
    """Return the error for an operation without a meaning; `change` says where it is."""
    return InvalidArgument(
        f"operation {shown(value)} of {change} is unknown",
        hint=f"{KNOWN_OPERATIONS}; pass operations={{name: 'upsert', 'delete' or 'skip'}} for "
        "others",
    )


def without_column(
    name: str, role: str, place: int | None, names: Sequence[str] = ()
) -> SchemaMismatch:
    """Return the error for changes, or for one of them, that lack a column."""
    where = "the changes have" if place is None else "a change has"
    return SchemaMismatch(
        f"{where} no {role} column {shown(name)}",
        column=name,
        row=place,
        hint=known_names_hint(name, names) if names else "Name the column that has it",
    )


def _check_batch(application: object, batch: object) -> None:
    if not isinstance(application, str):
        raise InvalidArgument(
            f"app_id is {type(application).__name__}, not text", hint="Name the application"
        )
    if type(batch) is not int or not 0 <= batch <= _BATCH_MAX:
        raise InvalidArgument(
            f"batch {shown(batch)} of {application!a} is not a number from 0 on",
            hint="Count batches up, or pass the offset of the last change",
        )
