"""The child process that decodes foreign files, and its protocol with the parent.

    python -m neve.inspect.decoder_child '{"task": "batches", …}' < FILE > frames

Decoders are C++ libraries: a hostile file can make them abort, or use any amount of memory. So
they run in a process of their own, with a memory limit and nothing to lose. It reads the file from
standard input and writes frames to standard output:

    ┌─────────┬─────────────────┬───────────────┬─────────┐
    │ kind u8 │ position u64    │ length u64    │ payload │   little-endian
    └─────────┴─────────────────┴───────────────┴─────────┘

    A  still alive                     S  a schema, as an Arrow stream without batches
    B  a batch, as an Arrow stream     E  an error, as JSON; nothing follows it
    F  facts of a data file, as JSON   Z  the end
    G  facts of a row group, as JSON

`position` is how far the file was read. Frames are the only output: no object of this process
reaches the parent.

Arrow has types whose arrays refer to one value many times: dictionaries, runs, views. A few bytes
of such an array become gigabytes when its values are read. So they are expanded here, in the
process with a limit, and cut into pieces before they are sent:

INSPECT-9   A batch has at most the rows asked for, and at most BATCH_BYTES unless one row has more.
INSPECT-10  No type of a batch shares values between rows.
INSPECT-11  The number of rows and elements without any bytes is limited.
"""

import io
import json
import os
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neve.errors import LimitExceeded, NeveError
from neve.inspect.data_file_facts import read_facts
from neve.inspect.opened_file import look_at
from neve.inspect.parquet_batches import (
    STREAM_BYTES,
    ParquetBudget,
    check_not_encrypted,
    parquet_batches,
)
from neve.inspect.shown_text import Json
from neve.inspect.without_pandas import keep_pandas_out
from neve.model.row_lineage import LINEAGE_NAMES
from neve.storage.posix_disk import PosixDisk

BATCH_BYTES: Final = 16 << 20

# Elements of lists, and rows, that have no bytes in the file.
_ELEMENTS_MAX: Final = 1 << 26
_EMPTY_ROWS_MAX: Final = 1 << 30
_FEWER: Final = 16
FRAME_HEAD: Final = struct.Struct("<cQQ")
PIECE_SECONDS: Final = 10.0
"""Processor time between two frames."""
_ARROW_FILE_MAGIC: Final = b"ARROW1"
_CONTINUES: Final = b"\xff" * 4
_STREAM_HEAD_BYTES_MAX: Final = 256 << 20
_ALIVE_SECONDS: Final = 1.0
_OTHER_BYTES: Final = 2 << 30
"""Address space of code and libraries, which is not counted."""


class PlainBatches:
    """Expands and cuts the batches of one file."""

    def __init__(self, *, rows_max: int) -> None:
        self._rows_max = rows_max
        self._empty_rows = 0

    def cut(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows in plain batches; raises ArrowException, LimitExceeded."""
        for batch in batches:
            # Arrow does not validate what files claim; the next steps rely on it.
            batch.validate(full=True)
            self._count(batch)
            plain = pa.schema([_plain_field(field) for field in batch.schema])
            is_plain = plain.types == batch.schema.types
            rows = self._rows_max if is_plain else min(self._rows_max, _FEWER**3)
            for start in range(0, batch.num_rows, rows):
                piece = batch.slice(start, rows)
                written = [piece] if is_plain else _written_out(piece, plain)
                for each in written:
                    yield from self._bounded(each)

    def joined(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join small batches: a row group may have only a few rows."""
        waiting: list[pa.RecordBatch] = []
        rows = byte_count = 0
        for batch in batches:
            is_full = rows + batch.num_rows > self._rows_max
            if waiting and (is_full or byte_count + batch.nbytes > BATCH_BYTES):
                yield _joined(waiting)
                waiting, rows, byte_count = [], 0, 0
            waiting.append(batch)
            rows += batch.num_rows
            byte_count += batch.nbytes
        if waiting:
            yield _joined(waiting)

    def _bounded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = max(1, batch.num_rows * BATCH_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def _count(self, batch: pa.RecordBatch) -> None:
        self._empty_rows += max(0, batch.num_rows - batch.nbytes)
        elements = sum(map(_element_count, batch.columns))
        for count, limit, what in (
            (self._empty_rows, _EMPTY_ROWS_MAX, "rows"),
            (elements - batch.nbytes, _ELEMENTS_MAX, "elements of lists"),
        ):
            if count > limit:
                raise LimitExceeded(
                    f"more than {limit:,} {what} hold nothing",
                    limit=limit,
                    actual=count,
                    hint="Check where the file comes from",
                )


def _written_out(batch: pa.RecordBatch, plain: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Expand the values of a batch, halving it until they fit."""
    try:
        yield _without_runs(batch).cast(plain)
    except (pa.ArrowMemoryError, pa.ArrowInvalid, pa.ArrowCapacityError):
        if batch.num_rows <= 1:
            raise
        rows = max(1, batch.num_rows // _FEWER)
        for start in range(0, batch.num_rows, rows):
            yield from _written_out(batch.slice(start, rows), plain)


def _without_runs(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        pc.call_function("run_end_decode", [column])
        if isinstance(column, pa.RunEndEncodedArray)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _plain_field(field: "pa.Field[pa.DataType]") -> "pa.Field[pa.DataType]":
    return field.with_type(_plain_type(field.type))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that stores each of the same values separately (INSPECT-10)."""
    if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
        return _plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if isinstance(kind, pa.StructType):
        return pa.struct([_plain_field(field) for field in kind.fields])
    if isinstance(kind, pa.MapType):
        key, item = _plain_field(kind.key_field), _plain_field(kind.item_field)
        return cast("pa.DataType", pa.map_(key, item))
    if isinstance(kind, pa.ListType | pa.ListViewType):
        return pa.list_(_plain_field(kind.value_field))
    if isinstance(kind, pa.LargeListType | pa.LargeListViewType):
        return pa.large_list(_plain_field(kind.value_field))
    if isinstance(kind, pa.FixedSizeListType):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    return kind


def _element_count(array: "pa.Array[pa.Scalar[pa.DataType]]") -> int:
    """Count the elements of all lists inside."""
    if isinstance(array, pa.StructArray):
        return sum(_element_count(array.field(at)) for at in range(array.type.num_fields))
    if isinstance(array, pa.MapArray):
        return len(array.keys) + _element_count(array.items)
    if isinstance(array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        return len(array.values) + _element_count(array.values)
    return 0


ALIVE, BATCH, FACTS, GROUP, SCHEMA, ERROR, DONE = (bytes([each]) for each in b"ABFGSEZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderTask:
    """What the child has to do."""

    task: str
    """`facts`, `batches` or `schema`."""
    form: str
    """`parquet` or `arrow`."""
    path: str
    """The name of the file in messages."""
    memory_bytes: int
    batch_rows: int


class _Frames:
    """The parent's end of a pipe."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.position: Callable[[], int] = lambda: 0
        self._begin_piece()

    def send(self, kind: bytes, payload: bytes | memoryview = b"") -> None:
        self._sink.write(FRAME_HEAD.pack(kind, self.position(), len(payload)))
        self._sink.write(payload)
        self._sink.flush()
        self._begin_piece()

    def send_json(self, kind: bytes, content: Json) -> None:
        self.send(kind, json.dumps(content).encode())

    def send_table(self, kind: bytes, schema: pa.Schema, batch: pa.RecordBatch | None) -> None:
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, schema) as writer:
            if batch is not None:
                writer.write_batch(batch)
        self.send(kind, memoryview(stream.getvalue()))

    def say_alive(self) -> None:
        """Send a sign of life, but only once in a while."""
        if time.monotonic() - self._said_at >= _ALIVE_SECONDS:
            self.send(ALIVE)

    def _begin_piece(self) -> None:
        """End this process if the next frame takes too much processor time.

        Wall time would not do: other processes may be busy, and a pipe may wait for its writer.
        """
        self._said_at = time.monotonic()
        signal.setitimer(signal.ITIMER_PROF, PIECE_SECONDS)


def main() -> None:
    """Do the task in the first argument, and exit without any clean-up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    task = DecoderTask(**json.loads(sys.argv[1]))
    # Libraries print to standard error.
    sink = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)
    keep_pandas_out()
    _limit_memory(task.memory_bytes)
    pa.set_cpu_count(1)
    frames = _Frames(sink)
    try:
        _TASKS[task.task](task, frames)
        frames.send(DONE)
    except BrokenPipeError:
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        frames.send_json(ERROR, _reported(error))
    # Threads of libraries may still run, and there is nothing to close.
    os._exit(0)


def _limit_memory(memory_bytes: int) -> None:
    # A deliberate abort leaves no core dump.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(ValueError, OSError):
        try:
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
        except OSError:
            bound = _OTHER_BYTES + memory_bytes
            resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
        else:
            bound = pages * resource.getpagesize() + memory_bytes
            resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


def _reported(error: Exception) -> Json:
    match error:
        case NeveError():
            facts = {
                name: getattr(error, name, None)
                for name in ("message", "path", "offset", "hint", "limit", "actual")
            }
            return {"kind": type(error).__name__, **facts}
        case MemoryError():
            return {"kind": "memory", "message": str(error)}
        case pa.ArrowException() | OSError() | ValueError() | ArithmeticError() | RecursionError():
            return {"kind": "damaged", "message": str(error) or type(error).__name__}
        case _:
            return {"kind": "bug", "message": "".join(traceback.format_exception(error))}


def _send_facts(task: DecoderTask, frames: _Frames) -> None:
    opened = look_at(PosixDisk(), 0, task.path)
    facts, pages = read_facts(opened, path=task.path, report=frames.say_alive)
    frames.send_json(FACTS, asdict(facts))
    for found in pages.findings(memory_bytes=task.memory_bytes, report=frames.say_alive):
        frames.send_json(GROUP, asdict(found))


def _send_batches(task: DecoderTask, frames: _Frames) -> None:
    opened = _opened(frames)
    schema, batches = _SOURCES[task.form](opened, task, frames)
    _check_names(schema)
    frames.send_table(SCHEMA, schema, None)
    plain = PlainBatches(rows_max=task.batch_rows)
    for batch in plain.joined(plain.cut(batches)):
        frames.send_table(BATCH, batch.schema, batch)


def _send_schema(task: DecoderTask, frames: _Frames) -> None:
    schema, _ = _SOURCES[task.form](_opened(frames), task, frames)
    _check_names(schema)
    frames.send_table(SCHEMA, schema, None)


def _check_names(fields: Iterable["pa.Field[pa.DataType]"]) -> None:
    """Raise UnicodeDecodeError for a name that is not UTF-8: Arrow decodes it on first use."""
    for field in fields:
        len(field.name)
        _check_names(field.type.field(at) for at in range(field.type.num_fields))


def _opened(frames: _Frames) -> io.BufferedReader:
    opened: io.BufferedReader = io.BufferedReader(io.FileIO(0, closefd=False))
    if opened.seekable():
        # The file itself may be closed by then.
        frames.position = lambda: os.lseek(0, 0, os.SEEK_CUR)
    return opened


def _parquet(
    opened: io.BufferedReader, task: DecoderTask, frames: _Frames
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    file_bytes = os.fstat(0).st_size
    check_not_encrypted(_read_at, file_bytes, task.path)
    file = pq.ParquetFile(
        opened, pre_buffer=False, buffer_size=STREAM_BYTES, page_checksum_verification=True
    )
    budget = ParquetBudget(
        read_at=_read_at,
        metadata=file.metadata,
        file_bytes=file_bytes,
        memory_bytes=task.memory_bytes,
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for group in range(file.num_row_groups):
            budget.bundles(group)  # all columns at once: rows stay complete
            for batch in parquet_batches(
                file, group=group, batch_rows=task.batch_rows, report=frames.say_alive
            ):
                yield batch.select(kept)

    # A data file of an Iceberg table may have row lineage columns, which are not the user's.
    schema, kept = file.schema_arrow, list(range(len(file.schema_arrow)))
    for place in reversed(range(len(schema))):
        if schema.field(place).name in LINEAGE_NAMES:
            schema = schema.remove(place)
            kept.remove(place)
    return schema, batches()


def _read_at(offset: int, length: int) -> bytes:
    return os.pread(0, length, offset)


def _arrow(
    opened: io.BufferedReader, task: DecoderTask, frames: _Frames
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    del task, frames
    if opened.seekable():
        magic = opened.read(len(_ARROW_FILE_MAGIC))
        opened.seek(0)
        if magic == _ARROW_FILE_MAGIC:
            file = pa.ipc.open_file(opened)
            places = range(file.num_record_batches)
            return file.schema, (file.get_batch(at) for at in places)
    # In old streams the length comes first.
    head = opened.peek(8)[:8].removeprefix(_CONTINUES)
    if int.from_bytes(head[:4], "little") > _STREAM_HEAD_BYTES_MAX:
        raise ValueError("it does not begin as an Arrow stream does")
    reader = pa.ipc.open_stream(opened)
    return reader.schema, iter(reader)


_SOURCES: Final = {"parquet": _parquet, "arrow": _arrow}
_TASKS: Final = {"facts": _send_facts, "batches": _send_batches, "schema": _send_schema}

if __name__ == "__main__":
    main()
