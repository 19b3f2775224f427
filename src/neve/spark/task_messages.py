"""What tasks tell the driver: rows of (kind, path, payload), however the work went.

    files    payload: the facts of the data files a task wrote, as an edit that adds them
    marks    path: a data file     payload: its rows that are superseded, as a deletion vector
    keys     payload: deleted keys, as an Arrow stream
    seen     payload: keys that a merge leaves as they are, in the same way
    error    payload: what went wrong, as JSON

An error that would be the same the next time is told like a result, so that the driver raises the
very same. Storage that did not answer, and errors that neve does not know, fail the task, and Spark
tries it again. When it gives up, the driver finds neve's error in the text of Spark's.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

import pyarrow as pa
from pyroaring import BitMap64

from neve import errors
from neve.errors import (
    Corruption,
    LimitExceeded,
    NeveError,
    OutcomeUnknown,
    SchemaMismatch,
    Unavailable,
)
from neve.jobs.run import BulkWork
from neve.keys.columns import KeyArray
from neve.manifest.version_codec import decode_edit, encode_edit
from neve.model.version import Operation, VersionEdit, VersionFacts
from neve.sstable.deletion_vector import decode_vector, encode_vector

MESSAGE_DDL: Final = "kind string, path string, payload binary"
_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "kind": pa.string(),
    "path": pa.string(),
    "payload": pa.binary(),
}
_SCHEMA: Final = pa.schema(_COLUMNS)

RETRIED: Final = (Unavailable, OutcomeUnknown)
"""Errors that may be gone when a task is tried again."""
_NOTED: Final = re.compile(r"neve said: (\{.*\})")


class Message(NamedTuple):
    """One row that a task gives."""

    kind: str
    path: str
    payload: bytes


def work_messages(work: BulkWork) -> Iterator[Message]:
    """Say what a task has made."""
    if work.files:
        facts = VersionFacts(
            operation=Operation.APPEND,
            timestamp_ms=0,
            schema_id=work.files[0].schema_id,
            spec_id=work.files[0].spec_id,
        )
        edit = VersionEdit(base=0, facts=facts, added=work.files)
        yield Message("files", "", encode_edit(edit))
    for path, positions in work.marked.items():
        yield Message("marks", path, encode_vector(positions))
    for keys in work.deleted_keys:
        yield Message("keys", "", _encode_keys(keys))
    for keys in work.seen_keys:
        yield Message("seen", "", _encode_keys(keys))


def work_of(messages: Iterable[Message]) -> BulkWork:
    """Put what tasks have made together; raises the first error that one of them had."""
    told = list(messages)
    for message in told:
        if message.kind == "error":
            raise read_error(message.payload)
    return BulkWork.joined(map(_work, told))


def reported(run: Callable[[], BulkWork]) -> Iterator[pa.RecordBatch]:
    """Do a task's work and give its messages; an error that would be the same again is one."""
    try:
        messages = list(work_messages(run()))
    except NeveError as error:
        messages = [Message("error", "", told_error(error))]
    columns: Sequence[Sequence[object]] = list(zip(*messages, strict=True)) or [(), (), ()]
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, _SCHEMA, strict=True)
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def told_error(error: NeveError) -> bytes:
    """Return an error as bytes, for the driver; raises one that may be gone at another try.

    Spark shows the notes of what a task raises, so the driver can still read it.
    """
    told = write_error(error)
    if isinstance(error, RETRIED):
        error.add_note(f"neve said: {told.decode()}")
        raise error
    return told


def error_in(text: str) -> NeveError | None:
    """Find the error that a task raised in what Spark says of it; None when it was no such one."""
    for told in _NOTED.findall(text):
        try:
            return read_error(told.encode())
        except (ValueError, LookupError, TypeError):
            continue  # cut off
    return None


def write_error(error: NeveError) -> bytes:
    """Return an error as bytes; what caused it becomes a note."""
    facts = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, str | int) and name != "args"
    }
    notes = [*getattr(error, "__notes__", []), "raised in a Spark worker"]
    return json.dumps({"type": type(error).__name__, "facts": facts, "notes": notes}).encode()


def read_error(payload: bytes) -> NeveError:
    """Make the error that `write_error` wrote."""
    document = json.loads(payload)
    facts: Mapping[str, object] = document["facts"]
    kind = getattr(errors, str(document["type"]), NeveError)
    message = str(facts.get("message", ""))
    path, hint = cast("str | None", facts.get("path")), cast("str | None", facts.get("hint"))
    error: NeveError
    if kind is SchemaMismatch:
        column, row = cast("str | None", facts.get("column")), cast("int | None", facts.get("row"))
        error = SchemaMismatch(message, column=column, row=row, path=path, hint=hint)
    elif kind is LimitExceeded:
        limit, actual = cast("int", facts.get("limit", 0)), cast("int | None", facts.get("actual"))
        error = LimitExceeded(message, limit=limit, actual=actual, path=path, hint=hint)
    else:
        known = kind if isinstance(kind, type) and issubclass(kind, NeveError) else NeveError
        error = known(message, path=path, hint=hint)
    error.offset = cast("int | None", facts.get("offset"))
    for note in document["notes"]:
        error.add_note(str(note))
    return error


def _work(message: Message) -> BulkWork:
    match message.kind:
        case "files":
            return BulkWork(files=decode_edit(message.payload, path="a Spark task").added)
        case "marks":
            marked: dict[str, BitMap64] = {message.path: decode_vector(message.payload)}
            return BulkWork(marked=marked)
        case "keys":
            return BulkWork(deleted_keys=(_decode_keys(message.payload),))
        case "seen":
            return BulkWork(seen_keys=(_decode_keys(message.payload),))
        case _:
            raise Corruption(f"a Spark task says {message.kind!a}")


def _encode_keys(keys: KeyArray) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([keys], names=["key"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _decode_keys(payload: bytes) -> KeyArray:
    with pa.ipc.open_stream(payload) as reader:
        return cast("KeyArray", reader.read_next_batch().column(0))
