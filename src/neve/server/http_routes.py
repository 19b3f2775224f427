"""The routes of Iceberg's REST API, each with what it asks of a token and what answers it.

A route is matched on the segments of the raw path, and each segment is decoded afterwards: names
may hold an escaped slash. What is not a route is a 404 of the error model.
"""

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, unquote

from neve.model.schema_json import Json, JsonObject
from neve.server.error_model import (
    FORBIDDEN,
    NO_NAMESPACE,
    NO_TABLE,
    NO_VIEW,
    UNSUPPORTED,
    RequestRefused,
    bad_request,
)
from neve.server.lake_catalog import LakeCatalog, TableChange, texts_of
from neve.server.rest_names import Namespace, TableRef
from neve.server.tokens import Access, Caller

PAGE_MAX: Final = 10_000
NESTING_MAX: Final = 200
IDEMPOTENCY_LIFETIME: Final = "PT30M"

_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request, read as a whole."""

    caller: Caller
    params: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def namespace(self) -> Namespace:
        """The namespace in the path."""
        return Namespace.of_path(self.params["namespace"])

    @property
    def table(self) -> TableRef:
        """The table in the path."""
        return TableRef.of_name(self.namespace, self.params["table"])

    def document(self) -> JsonObject:
        """Return the body, a JSON object; raises RequestRefused."""
        try:
            found: Json = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise bad_request(f"the body is not JSON: {str(error)[:200]}") from error
        if not isinstance(found, dict):
            raise bad_request("the body is not a JSON object")
        return found

    def page(self) -> tuple[str | None, int | None]:
        """Return the name before the page and how many names it has."""
        size = self.query.get("pageSize")
        after = _name_in(self.query.get("pageToken"))
        if size is None:
            return after, None
        if not size.isdecimal() or not 1 <= int(size[:9]) <= PAGE_MAX:
            raise bad_request(f"pageSize is a number from 1 to {PAGE_MAX:,}")
        return after, int(size)

    def check(self, access: Access, namespace: Namespace) -> None:
        """Raise RequestRefused when the caller may not touch a namespace."""
        if not self.caller.may(access, namespace.dotted):
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                FORBIDDEN,
                f"the token does not allow to {access} {namespace.dotted!a}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer."""

    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = _JSON


Handler = Callable[[LakeCatalog, Call], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path, and what answers them."""

    name: str
    method: str
    segments: tuple[str, ...]
    handle: Handler
    access: Access = "read"
    is_listed: bool = True
    """Whether the configuration lists it for clients."""
    missing: str = NO_TABLE
    """Type of the error for a thing that does not exist."""

    @property
    def endpoint(self) -> str:
        """The route as the configuration lists it."""
        path = "/".join(("v1", "{prefix}", *self.segments[1:]))
        return f"{self.method} /{path}"

    def match(self, method: str, segments: tuple[str, ...]) -> dict[str, str] | None:
        """Return the parameters in a path; None when it is another route's."""
        if method != self.method or len(segments) != len(self.segments):
            return None
        params: dict[str, str] = {}
        for wanted, given in zip(self.segments, segments, strict=True):
            if wanted.startswith("{"):
                params[wanted[1:-1]] = unquote(given)
            elif wanted != given:
                return None
        return params


def query_of(raw: bytes) -> dict[str, str]:
    """Return the first value of each parameter of a query."""
    found = parse_qs(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=100)
    return {name: values[0] for name, values in found.items()}


def _page_token(last: str | None) -> str | None:
    """Return the token of the page after a name."""
    return None if last is None else urlsafe_b64encode(last.encode()).decode()


def _name_in(token: str | None) -> str | None:
    try:
        return None if not token else b64decode(token.encode(), b"-_", validate=True).decode()
    except ValueError as error:
        raise bad_request("the pageToken is not one of this server") from error


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(status=status, body=json.dumps(value).encode())


_NOTHING: Final = Answer(status=HTTPStatus.NO_CONTENT)


def _config(_catalog: LakeCatalog, _call: Call) -> Answer:
    return _json(
        {
            "defaults": {},
            "overrides": {},
            "endpoints": [route.endpoint for route in ROUTES if route.is_listed],
            "idempotency-key-lifetime": IDEMPOTENCY_LIFETIME,
        }
    )


def _list_namespaces(catalog: LakeCatalog, call: Call) -> Answer:
    given = call.query.get("parent")
    parent = Namespace.of_path(given) if given else None
    if parent is not None and not call.caller.sees(parent.dotted):
        call.check("read", parent)
    after, limit = call.page()
    page = catalog.list_namespaces(parent, after=after, limit=limit, sees=call.caller.sees)
    names = [list(Namespace.of_dotted(name).levels) for name in page.names]
    return _json({"namespaces": names, "next-page-token": _page_token(page.last)})


def _create_namespace(catalog: LakeCatalog, call: Call) -> Answer:
    body = call.document()
    namespace = Namespace.of_levels(body.get("namespace"))
    call.check("write", namespace)
    properties = texts_of(body.get("properties"), what="properties")
    catalog.create_namespace(namespace, properties)
    return _json({"namespace": list(namespace.levels), "properties": properties})


def _load_namespace(catalog: LakeCatalog, call: Call) -> Answer:
    namespace = call.namespace
    properties = catalog.namespace_properties(namespace)
    return _json({"namespace": list(namespace.levels), "properties": properties})


def _namespace_exists(catalog: LakeCatalog, call: Call) -> Answer:
    catalog.namespace_properties(call.namespace)
    return _NOTHING


def _drop_namespace(catalog: LakeCatalog, call: Call) -> Answer:
    catalog.drop_namespace(call.namespace)
    return _NOTHING


def _change_namespace(catalog: LakeCatalog, call: Call) -> Answer:
    body = call.document()
    removals = body.get("removals") or []
    if not isinstance(removals, list):
        raise bad_request("removals are a list of names")
    names = [each for each in removals if isinstance(each, str)]
    if len(names) < len(removals):
        raise bad_request("removals are a list of names")
    updates = texts_of(body.get("updates"), what="updates")
    return _json(catalog.change_namespace(call.namespace, updates, names))


def _list_tables(catalog: LakeCatalog, call: Call) -> Answer:
    after, limit = call.page()
    page = catalog.list_tables(call.namespace, after=after, limit=limit)
    found = [TableRef.of_dotted(name).document for name in page.names]
    return _json({"identifiers": found, "next-page-token": _page_token(page.last)})


def _load_table(catalog: LakeCatalog, call: Call) -> Answer:
    wanted = call.query.get("snapshots", "all")
    if wanted not in {"all", "refs"}:
        raise bad_request("snapshots is either all or refs")
    served = catalog.load_table(call.table, only_refs=wanted == "refs")
    headers = {"ETag": served.etag}
    header = call.headers.get("if-none-match", "")
    known = {each.strip().removeprefix("W/") for each in header.split(",")}
    if known & {served.etag, "*"}:
        return Answer(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Answer(body=served.body, headers=headers)


def _table_exists(catalog: LakeCatalog, call: Call) -> Answer:
    if not catalog.table_exists(call.table):
        raise RequestRefused(HTTPStatus.NOT_FOUND, NO_TABLE, "there is no such table")
    return _NOTHING


def _create_table(catalog: LakeCatalog, call: Call) -> Answer:
    return Answer(body=catalog.create_table(call.namespace, call.document()))


def _register_table(catalog: LakeCatalog, call: Call) -> Answer:
    served = catalog.register_table(
        call.namespace, call.document(), may_read=partial(call.caller.may, "read")
    )
    return Answer(body=served.body, headers={"ETag": served.etag})


def _drop_table(catalog: LakeCatalog, call: Call) -> Answer:
    purge = call.query.get("purgeRequested", "false").lower()
    if purge not in {"true", "false"}:
        raise bad_request("purgeRequested is true or false")
    catalog.drop_table(call.table, purge=purge == "true")
    return _NOTHING


def _rename_table(catalog: LakeCatalog, call: Call) -> Answer:
    body = call.document()
    source, target = TableRef.of_body(body.get("source")), TableRef.of_body(body.get("destination"))
    call.check("write", source.namespace)
    call.check("write", target.namespace)
    catalog.rename_table(source, target)
    return _NOTHING


def _commit(catalog: LakeCatalog, call: Call) -> Answer:
    served = catalog.commit(TableChange.of_body(call.table, call.document()))
    return Answer(body=served.body, headers={"ETag": served.etag})


def _commit_all(catalog: LakeCatalog, call: Call) -> Answer:
    given = call.document().get("table-changes")
    if not isinstance(given, list) or not given:
        raise bad_request("a transaction has a list of table-changes")
    changes: list[TableChange] = []
    for each in given:
        if not isinstance(each, dict):
            raise bad_request("each of the table-changes is an object")
        ref = TableRef.of_body(each.get("identifier"))
        call.check("write", ref.namespace)
        changes.append(TableChange.of_body(ref, each))
    catalog.commit_all(changes)
    return _NOTHING


def _report(catalog: LakeCatalog, call: Call) -> Answer:
    call.document()
    if not catalog.table_exists(call.table):
        raise RequestRefused(HTTPStatus.NOT_FOUND, NO_TABLE, "there is no such table")
    return _NOTHING


def _credentials(catalog: LakeCatalog, call: Call) -> Answer:
    if not catalog.table_exists(call.table):
        raise RequestRefused(HTTPStatus.NOT_FOUND, NO_TABLE, "there is no such table")
    return _json({"storage-credentials": []})


def _list_views(catalog: LakeCatalog, call: Call) -> Answer:
    catalog.namespace_properties(call.namespace)
    return _json({"identifiers": [], "next-page-token": None})


def _no_view(_catalog: LakeCatalog, _call: Call) -> Answer:
    raise RequestRefused(HTTPStatus.NOT_FOUND, NO_VIEW, "there is no such view")


def _unsupported(catalog: LakeCatalog, call: Call) -> Answer:
    if "namespace" in call.params:
        catalog.namespace_properties(call.namespace)
    raise RequestRefused(HTTPStatus.NOT_ACCEPTABLE, UNSUPPORTED, "a lake has no views")


def _no_exchange(_catalog: LakeCatalog, _call: Call) -> Answer:
    # The one answer that has OAuth's form instead of Iceberg's.
    words = "the server issues no tokens: use one that it knows as a bearer token"
    error = {"error": "unsupported_grant_type", "error_description": words}
    return _json(error, HTTPStatus.BAD_REQUEST)


def _route(
    name: str,
    method: str,
    path: str,
    handle: Handler,
    *,
    access: Access = "read",
    listed: bool = True,
) -> Route:
    segments = tuple(path.strip("/").split("/"))
    missing = NO_TABLE if "{table}" in path else NO_VIEW if "{view}" in path else NO_NAMESPACE
    return Route(
        name=name,
        method=method,
        segments=segments,
        handle=handle,
        access=access,
        is_listed=listed,
        missing=missing,
    )


_SPACE: Final = "/v1/namespaces/{namespace}"
_TABLE: Final = f"{_SPACE}/tables/{{table}}"
_VIEW: Final = f"{_SPACE}/views/{{view}}"

ROUTES: Final = (
    _route("config", "GET", "/v1/config", _config, listed=False),
    _route("oauth", "POST", "/v1/oauth/tokens", _no_exchange, listed=False),
    _route("namespaces", "GET", "/v1/namespaces", _list_namespaces),
    _route("create-namespace", "POST", "/v1/namespaces", _create_namespace, access="write"),
    _route("namespace", "GET", _SPACE, _load_namespace),
    _route("namespace-exists", "HEAD", _SPACE, _namespace_exists),
    _route("drop-namespace", "DELETE", _SPACE, _drop_namespace, access="write"),
    _route(
        "namespace-properties", "POST", f"{_SPACE}/properties", _change_namespace, access="write"
    ),
    _route("tables", "GET", f"{_SPACE}/tables", _list_tables),
    _route("create-table", "POST", f"{_SPACE}/tables", _create_table, access="write"),
    _route("register", "POST", f"{_SPACE}/register", _register_table, access="write"),
    _route("table", "GET", _TABLE, _load_table),
    _route("table-exists", "HEAD", _TABLE, _table_exists),
    _route("commit", "POST", _TABLE, _commit, access="write"),
    _route("drop-table", "DELETE", _TABLE, _drop_table, access="write"),
    _route("rename-table", "POST", "/v1/tables/rename", _rename_table, access="write"),
    _route("transaction", "POST", "/v1/transactions/commit", _commit_all, access="write"),
    _route("report", "POST", f"{_TABLE}/metrics", _report),
    _route("credentials", "GET", f"{_TABLE}/credentials", _credentials),
    _route("views", "GET", f"{_SPACE}/views", _list_views),
    _route("view", "GET", _VIEW, _no_view),
    _route("view-exists", "HEAD", _VIEW, _no_view),
    _route("drop-view", "DELETE", _VIEW, _no_view, access="write", listed=False),
    _route("replace-view", "POST", _VIEW, _no_view, access="write", listed=False),
    _route(
        "create-view", "POST", f"{_SPACE}/views", _unsupported, access="write", listed=False
    ),
    _route(
        "register-view", "POST", f"{_SPACE}/register-view", _unsupported, access="write",
        listed=False,
    ),
    _route("rename-view", "POST", "/v1/views/rename", _no_view, access="write", listed=False),
)  # fmt: skip
