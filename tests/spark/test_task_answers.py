"""What a task has to say reaches the driver: as a row, or in the text of an error of Spark's."""

import traceback
from collections.abc import Iterator

import pyarrow as pa
import pytest

from neve.errors import (
    Conflict,
    Corruption,
    LimitExceeded,
    NeveError,
    OutcomeUnknown,
    SchemaMismatch,
    Unavailable,
)
from neve.spark.task_answers import (
    Message,
    TaskAnswer,
    answer_of,
    answered,
    error_in,
)


def messages(batches: Iterator[pa.RecordBatch]) -> list[Message]:
    return [
        Message(row["kind"], row["path"], row["payload"])
        for batch in batches
        for row in batch.to_pylist()
    ]


def failing(error: NeveError) -> Iterator[pa.RecordBatch]:
    def run() -> TaskAnswer:
        raise error

    return answered(run)


@pytest.mark.parametrize(
    "error",
    [
        SchemaMismatch("it is NULL", column="id", row=7, hint="Leave it out"),
        LimitExceeded("it is too large", limit=5, actual=6),
        Corruption("it is damaged", path="data/x", offset=12),
        Conflict("it was changed"),
    ],
)
def test_an_error_that_would_be_the_same_again_is_raised_by_the_driver_as_it_was(
    error: NeveError,
) -> None:
    told = messages(failing(error))
    with pytest.raises(type(error)) as raised:
        answer_of(told)
    assert str(raised.value) == str(error)
    assert "raised in a Spark worker" in raised.value.__notes__


@pytest.mark.parametrize("kind", [Unavailable, OutcomeUnknown])
def test_storage_that_did_not_answer_fails_the_task_and_is_found_in_what_spark_says(
    kind: type[NeveError],
) -> None:
    error = kind('"it" {did} not\nanswer', path="s3://bucket/x", hint="Wait – a moment")
    with pytest.raises(kind) as raised:
        list(failing(error))

    text = "".join(traceback.format_exception(raised.value))
    found = error_in(f"Job aborted: Task 0 failed 4 times: PythonException: {text}\n\tat java.X")

    assert type(found) is kind
    assert str(found) == str(error)
    assert error_in(text[: text.index("neve said") + 60]) is None
    assert error_in("an error of somebody else") is None
