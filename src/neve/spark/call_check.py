"""Checks the arguments of calls on Spark before anything is opened or run.

Swapped or missing arguments and stopped sessions are reported here, instead of by Java.
"""

from os import PathLike
from typing import Final

from neve.errors import Closed, InvalidArgument

_ORDER_OF_ROWS: Final = 'The order is (rows, location, name), such as (df, "./lake", "shop.orders")'
_ORDER_OF_SESSION: Final = (
    'The order is (session, location, name), such as (session, "./lake", "shop.orders")'
)


def check_place(location: object, name: object, *, after: str = "rows") -> None:
    """Raise InvalidArgument for an invalid location or name of a table.

    `after` says what the call takes before them: "rows", "session" or nothing.
    """
    hint = {"rows": _ORDER_OF_ROWS, "session": _ORDER_OF_SESSION}.get(
        after, 'The order is (location, name), such as ("./lake", "shop.orders")'
    )
    if not isinstance(location, str | PathLike):
        raise InvalidArgument(f"the location is {_kind(location)}", hint=hint)
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of the table is {_kind(name)}", hint=hint)


def refuse_memory(location: str) -> None:
    """Raise InvalidArgument for a lake in memory."""
    if location.startswith("memory:"):
        raise InvalidArgument(
            "Spark cannot use a lake in memory: its workers are other processes",
            path=location,
            hint="Keep the lake in a directory that all of them see, or in an object store",
        )


def check_progress(progress: object) -> None:
    """Raise InvalidArgument for an invalid `progress`."""
    if progress is not None and not callable(progress):
        raise InvalidArgument(
            f"progress is {_kind(progress)}",
            hint="Pass a function that takes the number of finished tasks and of all tasks",
        )


def check_upkeep(upkeep: object) -> None:
    """Raise InvalidArgument for an invalid `upkeep`."""
    if type(upkeep) is not bool:
        raise InvalidArgument(f"upkeep is {_kind(upkeep)}", hint="Use True or False")


def check_session(session: object) -> None:
    """Raise InvalidArgument for an object that is not a SparkSession, Closed for a stopped one."""
    if not hasattr(session, "createDataFrame") or not hasattr(session, "conf"):
        raise InvalidArgument(f"the session is {_kind(session)}", hint=_ORDER_OF_SESSION)
    if _is_stopped(session):
        raise Closed(
            "the session of Spark was stopped",
            hint="Start a new one with neve.spark.session()",
        )


def check_frame(rows: object) -> None:
    """Raise for an object that is not a DataFrame of Spark, is a stream, or lost its session."""
    session = getattr(rows, "sparkSession", None)
    if session is None or not isinstance(getattr(rows, "columns", None), list):
        hint = _ORDER_OF_ROWS
        if type(rows).__module__.startswith(("pandas.", "pyarrow.", "polars.")):
            hint = "Pass a DataFrame of Spark: session.createDataFrame(rows)"
        raise InvalidArgument(f"the rows are {_kind(rows)}", hint=hint)
    if _is_stopped(session):
        raise Closed(
            "the rows are of a session of Spark that was stopped",
            hint="Start a new one with neve.spark.session(), and create the rows in it",
        )
    if getattr(rows, "isStreaming", False):
        raise InvalidArgument(
            "the rows are a stream, and this writes them once",
            hint="Use rows.writeStream.foreachBatch(neve.spark.upsert_batch(…))",
        )


def _is_stopped(session: object) -> bool:
    is_stopped = getattr(session, "is_stopped", None)  # only sessions of Spark Connect say so
    if isinstance(is_stopped, bool):
        return is_stopped
    # A stopped context has released Java.
    return getattr(getattr(session, "sparkContext", None), "_jsc", None) is None


def _kind(given: object) -> str:
    return "None" if given is None else f"a {type(given).__name__}"
