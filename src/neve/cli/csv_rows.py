"""CsvRows: rows of a table out of the cells of a CSV file.

The first line names columns of the table, in any order; those that are left out become their
default or NULL. A cell holds a value in its text form, see `neve.cli.value_forms`. Nothing between
two commas is NULL, and "" is a text without letters.

Cells are converted column by column. Where that does not succeed, it is done again cell by cell,
which takes more forms, and says which cell is wrong.
"""

from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from neve.cli.value_forms import text_reader
from neve.errors import InvalidArgument, SchemaMismatch
from neve.model.arrow_types import NESTED_KINDS, TypeKind, kind_of
from neve.model.row_codec import RowCodec
from neve.model.scalar_values import Unfit
from neve.model.schema import TableSchema, similar_name_hint
from neve.model.schema_view import ArrowArray
from neve.model.shown_value import shown

_BLOCK_BYTES: Final = 16 << 20
_CELL_BY_CELL: Final = NESTED_KINDS | {TypeKind.TIME}
_FLOATS: Final = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})


class CsvRows:
    """Reads rows of one schema."""

    def __init__(self, schema: TableSchema, *, source: str, delimiter: str) -> None:
        """Take a schema, and how messages name the file."""
        self._schema = schema
        self._source = source
        self._delimiter = delimiter
        self._codec = RowCodec(schema)
        self._readers = {column.name: text_reader(column.type) for column in schema.columns}

    def batches(self, stream: BinaryIO) -> Iterator[pa.RecordBatch]:
        """Give the rows of a stream in batches of some megabytes; raises typed errors."""
        try:
            reader = self._open(stream)
            self._check_names(reader.schema.names)
            before = 0
            for batch in reader:
                yield self._converted(batch, before)
                before += batch.num_rows
        except pa.ArrowInvalid as error:
            raise InvalidArgument(
                f"{self._source} cannot be read as CSV: {str(error).partition(chr(10))[0]}",
                hint="Check the delimiter, and that the file is UTF-8 and has a head",
            ) from error

    def _open(self, stream: BinaryIO) -> pcsv.CSVStreamingReader:
        texts = {column.name: pa.string() for column in self._schema.columns}
        return pcsv.open_csv(
            stream,
            read_options=pcsv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=pcsv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=pcsv.ConvertOptions(
                column_types=texts,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _check_names(self, names: list[str]) -> None:
        for name in names:
            if name not in self._schema:
                raise SchemaMismatch(
                    f"column {shown(name)} of {self._source} is not in the table",
                    column=name,
                    hint=similar_name_hint(name, self._schema.arrow_schema.names)
                    or "The first line of the file names its columns",
                )
            if names.count(name) > 1:
                raise SchemaMismatch(
                    f"column {shown(name)} is in {self._source} twice", column=name
                )

    def _converted(self, cells: pa.RecordBatch, before: int) -> pa.RecordBatch:
        try:
            columns = {
                name: _column(cells.column(name), self._schema.column(name).type)
                for name in cells.schema.names
            }
        except (pa.ArrowException, ValueError):
            return self._cell_by_cell(cells, before)
        return pa.RecordBatch.from_pydict(columns)

    def _cell_by_cell(self, cells: pa.RecordBatch, before: int) -> pa.RecordBatch:
        names = cells.schema.names
        readers = [self._readers[name] for name in names]
        texts = [cast("list[str | None]", column.to_pylist()) for column in cells.columns]
        rows: list[bytes] = []
        for place, row in enumerate(zip(*texts, strict=True), start=before + 1):
            where = f"row {place:,} of {self._source}"
            values: dict[str, object] = {}
            for name, read, text in zip(names, readers, row, strict=True):
                values[name] = None if text is None else self._value(name, read, text, where)
            try:
                rows.append(self._codec.encode(values))
            except SchemaMismatch as error:
                raise SchemaMismatch(
                    f"{where}: {error.message}", column=error.column, hint=error.hint
                ) from None
        return self._codec.decode_many(rows)

    def _value(self, name: str, read: Callable[[str], object], text: str, where: str) -> object:
        try:
            return read(text)
        except Unfit as unfit:
            column = f"{name}.{unfit.path}" if unfit.path else name
            raise SchemaMismatch(
                f"{where}: column {shown(column)}: {unfit.reason}", column=column
            ) from None


def _column(texts: ArrowArray, arrow_type: pa.DataType) -> ArrowArray:
    """Convert a column of cells at once; raises ValueError or ArrowException when it cannot."""
    kind = kind_of(arrow_type)
    if kind in _CELL_BY_CELL:
        raise ValueError(f"cells of {kind} are converted one by one")
    if kind in {TypeKind.BINARY, TypeKind.FIXED}:
        contents = [None if each is None else bytes.fromhex(each) for each in _texts(texts)]
        return pa.array(contents, arrow_type)
    if isinstance(arrow_type, pa.UuidType):
        uuids = [None if each is None else UUID(each).bytes for each in _texts(texts)]
        return pa.ExtensionArray.from_storage(arrow_type, pa.array(uuids, pa.binary(16)))
    converted = cast("ArrowArray", pc.cast(texts, arrow_type))
    if kind in _FLOATS and pc.any(pc.is_inf(converted)).as_py():
        raise ValueError("a number may be too large for the column")
    return converted


def _texts(texts: ArrowArray) -> list[str | None]:
    return cast("list[str | None]", texts.to_pylist())
