"""TaskAnswer: what a Spark task returns to the driver, for every kind of work.

A task answers in rows of (task, kind, path, payload):

    files      payload: the facts of the data files it wrote, and of deletes to remember, as an
               edit that adds them
    marks      path: a data file     payload: its rows that are superseded, as a deletion vector
    keys       payload: deleted keys, as an Arrow stream
    seen       payload: keys that a merge leaves as they are, in the same way
    path       path: a data file whose index it rebuilt
    problem    payload: damage that it found, as JSON
    error      payload: the error that ended it, as JSON
    done       the last row of a complete task

An error that would happen again is a row like a result, so that the driver raises the same error.
Storage that did not answer, and errors that neve does not know, fail the task, and Spark tries it
again. When Spark gives up, the driver finds neve's error in the text of Spark's.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Row

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

ANSWER_DDL: Final = "task long, kind string, path string, payload binary"
_COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "task": pa.int64(),
    "kind": pa.string(),
    "path": pa.string(),
    "payload": pa.binary(),
}
_SCHEMA: Final = pa.schema(_COLUMNS)

RETRIED: Final = (Unavailable, OutcomeUnknown)
"""Errors that may not happen again when a task is retried."""
_NOTED: Final = re.compile(r"neve said: (\{.*\})")


class Message(NamedTuple):
    """One row of an answer."""

    kind: str
    path: str = ""
    payload: bytes = b""
    task: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAnswer:
    """What one or several tasks made and found."""

    work: BulkWork = field(default_factory=BulkWork)
    paths: tuple[str, ...] = ()
    """Data files whose indexes were rebuilt."""
    problems: tuple[NeveError, ...] = ()
    """Damage that a check found."""

    def messages(self) -> Iterator[Message]:
        """Yield the rows of the answer, up to `done`."""
        files, deletes = self.work.files, self.work.deletes
        if files or deletes:
            first = (*files, *deletes)[0]
            facts = VersionFacts(
                operation=Operation.APPEND,
                timestamp_ms=0,
                schema_id=first.schema_id,
                spec_id=first.spec_id,
            )
            edit = VersionEdit(base=0, facts=facts, added=files, deletes_added=deletes)
            yield Message("files", "", encode_edit(edit))
        for path, positions in self.work.marked.items():
            yield Message("marks", path, encode_vector(positions))
        for keys in self.work.deleted_keys:
            yield Message("keys", "", _encode_keys(keys))
        for keys in self.work.seen_keys:
            yield Message("seen", "", _encode_keys(keys))
        for path in self.paths:
            yield Message("path", path)
        for problem in self.problems:
            yield Message("problem", "", write_error(problem))
        yield Message("done")


def answered(run: Callable[[], TaskAnswer], task: int = 0) -> Iterator[pa.RecordBatch]:
    """Do a task's work and yield its answer; an error that would happen again is one."""
    try:
        messages = list(run().messages())
    except NeveError as error:
        messages = [Message("error", "", encoded_error(error))]
    columns = zip(*((task, each.kind, each.path, each.payload) for each in messages), strict=True)
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, _SCHEMA, strict=True)
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def messages_in(rows: Iterable[Row]) -> list[Message]:
    """Return the messages that Spark collected."""
    return [Message(row["kind"], row["path"], bytes(row["payload"]), row["task"]) for row in rows]


def answer_of(messages: Iterable[Message]) -> TaskAnswer:
    """Join the answers of tasks; raises the first error that ended one of them."""
    work: list[BulkWork] = []
    paths: list[str] = []
    problems: list[NeveError] = []
    given = list(messages)
    for message in given:
        if message.kind == "error":
            raise read_error(message.payload)
    for message in given:
        match message.kind:
            case "path":
                paths.append(message.path)
            case "problem":
                problems.append(read_error(message.payload))
            case "done":
                pass
            case _:
                work.append(_work(message))
    return TaskAnswer(work=BulkWork.joined(work), paths=tuple(paths), problems=tuple(problems))


def encoded_error(error: NeveError) -> bytes:
    """Return an error as bytes, for the driver; raises one that may not happen again.

    Spark shows the notes of what a task raises, so the driver can still read it.
    """
    payload = write_error(error)
    if isinstance(error, RETRIED):
        error.add_note(f"neve said: {payload.decode()}")
        raise error
    return payload


def error_in(text: str) -> NeveError | None:
    """Return neve's error in the text of a Spark error; None when there is none."""
    for told in _NOTED.findall(text):
        try:
            return read_error(told.encode())
        except (ValueError, LookupError, TypeError):
            continue  # truncated
    return None


def write_error(error: NeveError) -> bytes:
    """Return an error as bytes."""
    facts = {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, str | int) and name != "args"
    }
    notes = [*getattr(error, "__notes__", []), "raised in a Spark worker"]
    return json.dumps({"type": type(error).__name__, "facts": facts, "notes": notes}).encode()


def read_error(payload: bytes) -> NeveError:
    """Return the error that `write_error` wrote."""
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
            edit = decode_edit(message.payload, path="a Spark task")
            return BulkWork(files=edit.added, deletes=edit.deletes_added)
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
