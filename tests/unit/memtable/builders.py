"""Small memtables for tests, with defaults."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.memtable.found_row import BatchRow, Found
from neve.memtable.memtable import Memtable
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema

Row = dict[str, object]


@dataclass(frozen=True)
class Bench:
    """A schema with all that belongs to it."""

    schema: TableSchema
    codec: RowCodec
    encoder: KeyEncoder

    @classmethod
    def of(cls, columns: Sequence[tuple[str, pa.DataType]], primary_key: Sequence[str]) -> "Bench":
        schema = TableSchema.from_arrow(pa.schema(columns), primary_key=primary_key)
        key_types = [schema.column(name).type for name in primary_key]
        return cls(schema, RowCodec(schema), KeyEncoder(key_types, primary_key))

    def memtable(self, *, first_sequence: int = 1) -> Memtable:
        return Memtable(self.schema, self.codec, self.encoder, first_sequence=first_sequence)

    def key(self, *values: object) -> bytes:
        return self.encoder.encode(values)

    def key_of(self, row: Row) -> bytes:
        return self.key(*(row[name] for name in self.encoder.names))

    def value(self, row: Row) -> bytes:
        return self.codec.encode(row)

    def batch(self, rows: Sequence[Row]) -> tuple[KeyArray, pa.RecordBatch]:
        batch = self.codec.decode_many([self.value(row) for row in rows])
        columns = [batch.column(name) for name in self.encoder.names]
        return self.encoder.encode_arrays(columns), batch

    def keys(self, values: Sequence[Sequence[object]]) -> KeyArray:
        columns = [
            pa.array([each[at] for each in values], key_type)
            for at, key_type in enumerate(self.encoder.types)
        ]
        return self.encoder.encode_arrays(columns)

    def row(self, found: Found | None) -> object:
        """Return a found row as a dict; a delete and None as they are."""
        if isinstance(found, BatchRow):
            (row,) = found.batch.slice(found.row, 1).to_pylist()
            return row
        return self.codec.decode(found) if isinstance(found, bytes) else found


NUMBERED = Bench.of([("id", pa.int64()), ("v", pa.string())], ["id"])
NAMED = Bench.of([("v", pa.int64()), ("name", pa.string())], ["name"])


def numbered(number: int, text: str) -> Row:
    return {"id": number, "v": text}


def put(memtable: Memtable, sequence: int, number: int, text: str) -> None:
    memtable.put(sequence, NUMBERED.key(number), NUMBERED.value(numbered(number, text)))


def upsert(memtable: Memtable, sequence: int, *rows: tuple[int, str]) -> None:
    memtable.upsert_batch(sequence, *NUMBERED.batch([numbered(*row) for row in rows]))


def delete(memtable: Memtable, sequence: int, number: int) -> None:
    memtable.delete(sequence, NUMBERED.key(number))


def text_of(memtable: Memtable, number: int, *, at: int | None = None) -> object:
    """Return the text of a numbered row as a get finds it, or what was found instead."""
    key = NUMBERED.key(number)
    found = NUMBERED.row(memtable.get(key) if at is None else memtable.get_at(key, at))
    return found["v"] if isinstance(found, dict) else found


def live(memtable: Memtable, *, at: int | None = None) -> list[tuple[int, str]]:
    """Return number and text of each live row, in the order of the view."""
    view = memtable.view(memtable.last_sequence if at is None else at)
    return [(row["id"], row["v"]) for row in view.live().to_pylist()]
