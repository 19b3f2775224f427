"""`neve.spark.attach`: the tables of a lake by name, in Spark's own SQL.

    ns.attach(session, "./lake", "lake")
    session.sql("select * from lake.shop.orders version as of 3").show()

    Spark ─► NeveCatalog.java ─► Python: `_Answers` ─► neve

Spark asks a catalog, which is a Java class. It comes as source: the compiler that is a part of
Spark compiles it when the first lake is attached, and Spark loads it from a small jar. The class
passes every question on to Python, through PySpark's own gateway.

    to read a table     Python makes the DataFrame of `read`, and returns a view of it: Spark plans
                        it as if the view's text were in the query, on its native Parquet scan
    to insert rows      Spark passes the rows as a DataFrame, for `insert_rows`
    to change others    refused at once: `neve.spark.sql` does it

A view is only needed until Spark has read its text, so some of the last ones are kept. With them
are the DataFrames, whose leases keep the files (SPARK-3).

Spark Connect has no place for such a catalog, and on PySpark 3.5 there is none. There, `attach`
makes the name known to `neve.spark.sql` only, and says so.
"""

import atexit
import re
import shutil
import tempfile
import warnings
import zipfile
from collections import deque
from collections.abc import Callable, Mapping
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from neve.catalog.lake import Lake
from neve.catalog.system_tables import is_system_name
from neve.errors import AlreadyExists, InvalidArgument, NeveError, NotFound
from neve.model.display import shown
from neve.spark.attached_lakes import AttachedLake, lake_id_of, lake_of_id, remember
from neve.spark.call_check import check_place, check_session
from neve.spark.read_plan import TableAddress
from neve.spark.spark_session import prepare
from neve.spark.spark_types import spark_schema
from neve.spark.sql_changes import insert_rows
from neve.sql.statements import Dialect
from neve.storage.clock import SystemIds

_CLASS: Final = "neve.NeveCatalog"
_SOURCE: Final = "NeveCatalog.java"
_JAVA: Final = 8
"""The version of Java that the source is written in."""
_GLOBAL: Final = "global_temp"
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_TAKEN: Final = frozenset({"spark_catalog", "system", "session", _GLOBAL})
_VIEWS_KEPT: Final = 64
_VERSION_MIN: Final = 4
_INSERT_ONLY: Final = "[INSERT]"

# Views that Spark may still have to read, oldest first; their frames hold leases.
_VIEWS: Final[deque[tuple[SparkSession, str, DataFrame]]] = deque()


def attach(
    session: SparkSession,
    location: str | PathLike[str],
    name: str,
    *,
    fresh: bool = False,
    read_only: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Make the tables of a lake known as `name.namespace.table`, in this session.

    Spark's own SQL then has SELECT, with `VERSION AS OF` and `TIMESTAMP AS OF`, INSERT INTO, SHOW,
    DESCRIBE, USE, DROP TABLE, and CREATE and DROP NAMESPACE; `neve.spark.sql` has everything. Each
    query reads what is committed when it is analysed; with `fresh`, also the rows that a running
    writer has logged. INSERT INTO refuses a row whose key exists. Attaching again replaces the lake
    of the name.

    On Spark Connect and on PySpark 3.5 the name is known to `neve.spark.sql` only, which a warning
    says. Raises NotFound when there is no lake, AlreadyExists when Spark has another catalog of
    this name.
    """
    check_session(session)
    check_place(location, name, after="session")
    if not _NAME.fullmatch(name) or name.lower() in _TAKEN:
        raise InvalidArgument(
            f"a lake cannot be attached as {shown(name)}",
            hint="Use letters, digits and underscores, and no name of Spark's own",
        )
    address = TableAddress.of(location, name, storage_options)
    lake = AttachedLake(
        name=name,
        location=address.location,
        storage_options=dict(address.storage_options) or None,
        fresh=fresh,
        read_only=read_only,
    )
    with lake.opened():
        pass
    lake_id = lake_id_of(session, name)
    setting = f"spark.sql.catalog.{name}"
    if lake_id is None and session.conf.get(setting, None) is not None:
        raise AlreadyExists(
            f"Spark has another catalog {shown(name)}", hint="Attach the lake under another name"
        )
    prepare(session)
    lake_id = lake_id or SystemIds().uuid().hex
    remember(session, lake, lake_id)
    reason = _cannot_install(session)
    if reason is not None:
        warnings.warn(
            f"{reason}: {name}.namespace.table is known to neve.spark.sql(session, …), and not to "
            "session.sql",
            UserWarning,
            stacklevel=2,
        )
        return
    session.conf.set(f"{setting}.lake", lake_id)
    session.conf.set(setting, _CLASS)
    _install(session, name)


def _cannot_install(session: SparkSession) -> str | None:
    """Return why a session takes no catalog from Python, if so."""
    if not hasattr(session, "_jsparkSession"):
        return "Spark Connect takes no catalog from its clients"
    if int(session.version.partition(".")[0]) < _VERSION_MIN:
        return f"neve has no catalog for Spark {session.version}"
    return None


def _install(session: SparkSession, name: str) -> None:
    """Have Spark load the catalog now, in this thread; it keeps it for the whole session."""
    spark: Any = session
    jvm, java = spark._jvm, spark._jsparkSession  # noqa: SLF001 - PySpark has no other way to Java
    loader = java.sharedState().jarClassLoader()
    if loader.getResource(_CLASS.replace(".", "/") + ".class") is None:
        loader.addURL(jvm.java.io.File(_compiled(jvm)).toURI().toURL())
    field = loader.loadClass(_CLASS).getField("python")
    if field.get(None) is None:
        _start_callbacks(spark.sparkContext)
        field.set(None, _Answers())
    # Spark takes the settings of the session that is active, and the classes of this thread.
    thread, sessions = jvm.java.lang.Thread.currentThread(), jvm.SparkSession
    before, active = thread.getContextClassLoader(), sessions.getActiveSession()
    thread.setContextClassLoader(loader)
    sessions.setActiveSession(java)
    try:
        java.sessionState().catalogManager().catalog(name)
    finally:
        thread.setContextClassLoader(before)
        if active.isDefined():
            sessions.setActiveSession(active.get())
        else:
            sessions.clearActiveSession()


def _start_callbacks(context: Any) -> None:  # noqa: ANN401 - a SparkContext, with its gateway
    from pyspark.java_gateway import (  # noqa: PLC0415 - Spark Connect installs without it
        ensure_callback_server_started,
    )

    ensure: Any = ensure_callback_server_started
    ensure(context._gateway)  # noqa: SLF001 - as PySpark does for streams


def _compiled(jvm: Any) -> str:  # noqa: ANN401 - Py4J has no types
    """Compile the catalog with the compiler that Spark brings; return the path of a jar."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.setSourceVersion(_JAVA)
    compiler.setTargetVersion(_JAVA)
    compiler.cook(files("neve.spark").joinpath(_SOURCE).read_text())
    classes = compiler.getBytecodes()
    folder = Path(tempfile.mkdtemp(prefix="neve-catalog-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    jar = folder / "neve-catalog.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for name in classes:
            archive.writestr(name.replace(".", "/") + ".class", bytes(classes[name]))
    return str(jar)


class _Answers:
    """Answers the questions of the Java class; called in threads of PySpark's gateway."""

    class Java:
        """What Java sees."""

        implements: Final = ["java.util.function.BiFunction"]

    def apply(self, question: str, more: Any) -> object:  # noqa: ANN401 - of Java, or text
        """Answer; an error is returned as an exception of Java."""
        lake_id, what, about = question.split("\n", 2)
        session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        answer: Callable[[SparkSession, AttachedLake, str, Any], object] = _ANSWERS[what]
        try:
            return answer(session, lake_of_id(lake_id), about, more)
        except Exception as error:  # noqa: BLE001 - Spark would show only a traceback
            return _for_java(session, error)


def _for_java(session: Any, error: Exception) -> object:  # noqa: ANN401 - as above
    lang = session._jvm.java.lang  # noqa: SLF001 - as above
    if isinstance(error, _Refused):
        return lang.UnsupportedOperationException(str(error))
    if isinstance(error, NeveError):
        return lang.IllegalArgumentException(f"{type(error).__name__}: {error}")
    return lang.IllegalStateException(f"{type(error).__name__}: {error}")


class _Refused(InvalidArgument):
    """What only `neve.spark.sql` does."""


def _refuse(_session: SparkSession, _lake: AttachedLake, about: str, _more: str) -> object:
    raise _Refused(
        f"Spark's own SQL cannot change the definition of {about}",
        hint="Use neve.spark.sql(session, text): its CREATE TABLE has PRIMARY KEY and PARTITIONED "
        "BY, and it has ALTER TABLE",
    )


def _read(session: SparkSession, lake: AttachedLake, table: str, at: str) -> object:
    with lake.opened() as opened:
        if not (is_system_name(table) or _has_table(opened, table)):
            return None
    kind, _, value = at.partition(" ")
    if kind == "version" and not value.isdigit():
        raise InvalidArgument(f"{shown(value)} is not a version", hint="Write VERSION AS OF 12")
    frame = lake.read(
        session,
        table,
        version=int(value) if kind == "version" else None,
        timestamp=int(value) // 1_000 if kind == "micros" else None,
    )
    return _view_of(session, frame)


def _view_of(session: Any, frame: DataFrame) -> object:  # noqa: ANN401 - as above
    """Return a DataFrame as a table whose rows Spark reads through the text of a view."""
    name = f"neve_{SystemIds().uuid().hex}"
    frame.createOrReplaceGlobalTempView(name)
    rows = f"SELECT * FROM {_GLOBAL}.{name}"  # noqa: S608 - a name of our own
    session.sql(f"CREATE OR REPLACE GLOBAL TEMPORARY VIEW {name}_text AS {rows}")
    jvm = session._jvm  # noqa: SLF001 - as above
    place = jvm.org.apache.spark.sql.catalyst.TableIdentifier(
        f"{name}_text", jvm.scala.Option.apply(_GLOBAL)
    )
    catalog = session._jsparkSession.sessionState().catalog()  # noqa: SLF001 - as above
    view = catalog.getTempViewOrPermanentTableMetadata(place)
    _VIEWS.append((session, name, frame))
    while len(_VIEWS) > _VIEWS_KEPT:
        _forget(*_VIEWS.popleft()[:2])
    return jvm.org.apache.spark.sql.connector.catalog.V1Table(view)


def _forget(session: SparkSession, name: str) -> None:
    if getattr(session.sparkContext, "_jsc", None) is not None:  # otherwise it was stopped
        session.catalog.dropGlobalTempView(f"{name}_text")
        session.catalog.dropGlobalTempView(name)


def _write(session: Any, lake: AttachedLake, table: str, privileges: str) -> object:  # noqa: ANN401
    """Return the columns of a table that rows are inserted into."""
    if privileges != _INSERT_ONLY:
        raise _Refused(
            f"Spark's own SQL only inserts rows into {table}",
            hint="Use neve.spark.sql(session, text) for UPDATE, DELETE, MERGE and INSERT OR "
            "REPLACE, and neve.spark.overwrite_partitions to overwrite",
        )
    lake.refuse_changes()
    with lake.opened() as opened:
        if not _has_table(opened, table):
            return None
        schema = opened.load_table(table).schema
    shown_schema = spark_schema(schema.columns)
    for field, column in zip(shown_schema.fields, schema.columns, strict=True):
        if column.write_default is not None:
            text = Dialect.SPARK.literal(column.write_default)
            value = f"CAST({text} AS {field.dataType.simpleString()})"
            field.metadata = {"CURRENT_DEFAULT": value, "EXISTS_DEFAULT": value}
    types = session._jvm.org.apache.spark.sql.types  # noqa: SLF001 - as above
    return types.DataType.fromJson(shown_schema.json())


def _insert(session: SparkSession, lake: AttachedLake, table: str, rows: Any) -> None:  # noqa: ANN401
    insert_rows(session, lake, table, DataFrame(rows, session))


def _tables(_session: SparkSession, lake: AttachedLake, namespace: str, _more: str) -> str:
    with lake.opened() as opened:
        names = opened.list_tables(namespace)
    return "\n".join(name.rpartition(".")[2] for name in names)


def _table_exists(
    _session: SparkSession, lake: AttachedLake, table: str, _more: str
) -> bool | None:
    with lake.opened() as opened:
        return _has_table(opened, table) or None


def _has_table(lake: Lake, table: str) -> bool:
    """Return whether a table exists.

    After USE, Spark also asks for names that no table can have, such as parquet.`/data/file`.
    """
    try:
        return lake.table_exists(table)
    except InvalidArgument:
        return False


def _drop(_session: SparkSession, lake: AttachedLake, table: str, more: str) -> bool | None:
    with lake.opened() as opened:
        if not _has_table(opened, table):
            return None
        try:
            opened.drop_table(table, purge=more == "purge")
        except NotFound:
            return None
    return True


def _rename(_session: SparkSession, lake: AttachedLake, table: str, new: str) -> None:
    with lake.opened() as opened:
        opened.rename_table(table, new)


def _namespaces(_session: SparkSession, lake: AttachedLake, parent: str, _more: str) -> str:
    with lake.opened() as opened:
        return "\n".join(opened.list_namespaces(parent or None))


def _namespace_exists(
    _session: SparkSession, lake: AttachedLake, namespace: str, _more: str
) -> bool | None:
    with lake.opened() as opened:
        parent = namespace.rpartition(".")[0] or None
        return not namespace or namespace in opened.list_namespaces(parent) or None


def _create_namespace(
    _session: SparkSession, lake: AttachedLake, namespace: str, _more: str
) -> None:
    with lake.opened() as opened:
        opened.create_namespace(namespace)


def _drop_namespace(
    _session: SparkSession, lake: AttachedLake, namespace: str, more: str
) -> bool | None:
    if more == "cascade":
        raise _Refused(f"{namespace} is not dropped with its tables", hint="Drop them first")
    with lake.opened() as opened:
        try:
            opened.drop_namespace(namespace)
        except NotFound:
            return None
    return True


_ANSWERS: Final[Mapping[str, Callable[..., object]]] = {
    "read": _read,
    "write": _write,
    "insert": _insert,
    "exists": _table_exists,
    "tables": _tables,
    "create": _refuse,
    "alter": _refuse,
    "alter namespace": _refuse,
    "drop": _drop,
    "rename": _rename,
    "namespaces": _namespaces,
    "namespace exists": _namespace_exists,
    "create namespace": _create_namespace,
    "drop namespace": _drop_namespace,
}
