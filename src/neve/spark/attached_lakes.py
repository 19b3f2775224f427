"""Lakes by name in a session of Spark, and what the names in a statement mean there.

    lake.shop.orders     a table of the lake that is attached as `lake`
    shop.orders          the same, after USE lake
    orders               a temporary view, or whatever Spark knows by this name

What is attached is a setting of the session, `spark.neve.lakes`, so it is known wherever the
session is: in clones of it, and in other objects for the same session. The setting has ids; the
lakes, with their storage options, stay in this process.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from neve.catalog.lake import Lake, open_lake
from neve.catalog.moment import Moment
from neve.catalog.sql_door import Parameters
from neve.errors import InvalidArgument, NeveError, NotFound
from neve.model.display import shown
from neve.model.suggestions import similar_name, suggestion
from neve.spark.reading import read
from neve.spark.spark_types import quoted

_SETTING: Final = "spark.neve.lakes"
_PROPOSED: Final = re.compile(r"`([^`]+)`(?=,|$)")
_TOKEN: Final = re.compile(
    r"""
    --[^\n]* | /\*.*?\*/                                      # comments
    | \b[rR](?:'[^']*'|"[^"]*")                               # literals without escapes
    | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*"                # literals
    | `(?:``|[^`])*`                                          # names
    """,
    re.DOTALL | re.VERBOSE,
)
_LAKES: Final[dict[str, "AttachedLake"]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedLake:
    """A lake under a name of a session."""

    name: str
    location: str
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    fresh: bool = False
    read_only: bool = False

    @contextmanager
    def opened(self) -> Iterator[Lake]:
        """Open the lake; raises NotFound where there is none."""
        with open_lake(
            self.location,
            storage_options=self.storage_options,
            create=False,
            read_only=self.read_only,
        ) as lake:
            yield lake

    def refuse_changes(self) -> None:
        """Raise InvalidArgument when the lake was attached for reading only."""
        if self.read_only:
            raise InvalidArgument(
                f"the lake {shown(self.name)} was attached for reading only",
                path=self.location,
                hint="Attach it without read_only",
            )

    def read(
        self,
        session: SparkSession,
        table: str,
        *,
        version: int | None = None,
        timestamp: Moment | None = None,
    ) -> DataFrame:
        """Return a table, the current one or an old one."""
        return read(
            session,
            self.location,
            table,
            version=version,
            timestamp=timestamp,
            fresh=self.fresh and version is None and timestamp is None,
            storage_options=self.storage_options,
        )

    def changes(
        self, session: SparkSession, table: str, since: int, until: int | None
    ) -> DataFrame:
        """Return the changes of a table after one Version, up to another."""
        reader = session.read.format("neve").option("table", table).option("since", str(since))
        for name, value in (self.storage_options or {}).items():
            reader = reader.option(f"storage.{name}", value)
        found = reader.load(self.location)
        return found if until is None else found.where(f"_commit_version <= {until}")


def remember(session: SparkSession, lake: AttachedLake, lake_id: str) -> None:
    """Attach a lake to a session; one of the same name is replaced."""
    _LAKES[lake_id] = lake
    session.conf.set(_SETTING, json.dumps({**_ids(session), lake.name: lake_id}))


def lake_id_of(session: SparkSession, name: str) -> str | None:
    """Return the id of an attached lake."""
    return _ids(session).get(name)


def lake_of_id(lake_id: str) -> AttachedLake:
    """Return an attached lake by its id; raises NotFound."""
    if lake_id not in _LAKES:
        raise NotFound("the lake was attached in another process", hint="Attach it again")
    return _LAKES[lake_id]


def attached_lakes(session: SparkSession) -> dict[str, AttachedLake]:
    """Return the lakes of a session, by name."""
    return {name: lake_of_id(lake_id) for name, lake_id in _ids(session).items()}


def _ids(session: SparkSession) -> dict[str, str]:
    found: dict[str, str] = json.loads(session.conf.get(_SETTING, "{}") or "{}")
    return found


class RelationFrames:
    """Relations of a statement as DataFrames by name; for one thread.

    Text is passed to Spark with the frames in it, so no name of the session is used or replaced.
    """

    def __init__(self, session: SparkSession, params: Parameters | None = None) -> None:
        self._session = session
        self._frames: dict[str, DataFrame] = {}
        self._params: dict[str, Any] | None = None
        if isinstance(params, Mapping):
            self._params = dict(params)
        elif params is not None:
            self._params = {f"_{place}": value for place, value in enumerate(params, 1)}

    def add(self, name: str, rows: DataFrame) -> None:
        """Make rows known by a name."""
        # Spark forgets what is cached of a frame after a query with it, but not of what is below.
        self._frames[name] = rows.select("*")

    def rows(self, text: str) -> DataFrame:
        """Run a query; raises errors of neve where Spark does not understand it."""
        fields = {name: f"neve_{place}" for place, name in enumerate(self._frames)}
        formatted = with_fields(text, fields)
        used = {
            field: self._frames[name]
            for name, field in fields.items()
            if f"{{{field}}}" in formatted
        }
        with explained(self._session):
            if used:
                found = self._session.sql(formatted, self._params, **used)
            else:
                found = self._session.sql(text, self._params)
            _ = found.schema  # on Spark Connect, this makes the server look
        return found


def with_fields(text: str, fields: Mapping[str, str]) -> str:
    """Return a query as a format string, with a field for each quoted name that has one.

    What only looks like such a name, in a literal or a comment, stays as it is.
    """
    found = {_escaped(quoted(name)): f"{{{field}}}" for name, field in fields.items()}
    return _TOKEN.sub(lambda token: found.get(token[0], token[0]), _escaped(text))


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


@contextmanager
def explained(session: SparkSession) -> Iterator[None]:
    """Raise errors of neve instead of Spark's."""
    try:
        yield
    except AnalysisException as error:
        raise _own(session, error) from error


def _own(session: SparkSession, error: AnalysisException) -> NeveError:
    text = str(error).strip()
    words = text.partition("\n")[0]
    condition = _condition(error)
    if isinstance(error, ParseException):
        return InvalidArgument(f"the SQL cannot be read\n{text.partition('JVM stack')[0].strip()}")
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        name = _parameter(error, "relationName")
        return _no_relation(session, name)
    if condition.startswith("UNRESOLVED_COLUMN"):
        proposals = _PROPOSED.findall(_parameter(error, "proposal"))
        return NotFound(
            f"the query failed: there is no column {shown(_parameter(error, 'objectName'))}",
            hint=suggestion(proposals[0]) if proposals else None,
        )
    return InvalidArgument(f"the query failed: {words}")


def _condition(error: AnalysisException) -> str:
    # PySpark 3.5 calls it the class of an error.
    name = "getCondition" if hasattr(error, "getCondition") else "getErrorClass"
    return str(getattr(error, name)() or "")


def _parameter(error: AnalysisException, name: str) -> str:
    found = error.getMessageParameters() or {}
    text = str(found.get(name, ""))
    return text if name == "proposal" else text.replace("`", "")


def _no_relation(session: SparkSession, name: str) -> NotFound:
    views = [each.name for each in session.catalog.listTables() if each.isTemporary]
    lakes = attached_lakes(session)
    similar = similar_name(name, [*views, *lakes])
    return NotFound(
        f"there is no relation {shown(name)}",
        hint=suggestion(similar)
        if similar is not None
        else "Name tables with their lake and namespace, such as lake.shop.orders",
    )
