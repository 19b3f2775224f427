"""CatalogApp: an ASGI application that serves a lake as an Iceberg REST catalog.

    request ──► limits ──► token ──► route ──► LakeCatalog, in a thread ──► answer ──► access log

Any ASGI host can run it: `app = neve.server.http_app.CatalogApp(lake)`. Work on a lake blocks, so
each call runs in a thread. A body is read whole, and is bounded in bytes and in time; more calls at
once than `concurrency` are refused with 503, which clients repeat.

`/healthz` says that the process answers, `/readyz` that the lake can be read, `/metrics` has the
numbers of `neve.observability` in Prometheus' format.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from http import HTTPStatus
from threading import Lock
from typing import Final
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from neve.catalog.lake import Lake
from neve.errors import InvalidArgument, NeveError
from neve.observability.metrics import (
    SERVER_BYTES_READ,
    SERVER_BYTES_SENT,
    SERVER_COMMIT_SECONDS,
    SERVER_REFUSED,
    SERVER_REQUEST_SECONDS,
    SERVER_UNDER_WAY,
)
from neve.observability.prometheus import PrometheusRecorder
from neve.server.error_model import (
    BAD_REQUEST,
    FORBIDDEN,
    NO_ROUTE,
    NOT_AUTHORIZED,
    TOO_LARGE,
    UNAVAILABLE,
    RequestRefused,
    refusal_of,
)
from neve.server.http_routes import ROUTES, Answer, Call, Route, query_of
from neve.server.lake_catalog import LakeCatalog
from neve.server.tokens import ANYONE, Caller, Tokens

logger = logging.getLogger(__name__)

_BEARER: Final = "bearer "
_IDEMPOTENT_MAX: Final = 1_000
_IDEMPOTENT_MS: Final = 30 * 60 * 1000
_KEY_CHARACTERS_MAX: Final = 128
_COMMITS: Final = frozenset({"commit", "transaction"})
_PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What a server accepts."""

    body_bytes: int = 16 << 20
    body_seconds: float = 30.0
    """How long a client may take to send a body."""
    concurrency: int = 64
    """Calls at once; more are refused with 503."""
    head_bytes: int = 64 << 10
    """Of the first line and the headers."""
    head_seconds: float = 10.0
    """How long a client may take to send them, counted from the connection or the first byte."""
    connections: int = 1_000
    """Open at once, and never more than half of the files that the process may open."""

    def __post_init__(self) -> None:
        sizes = self.body_bytes, self.concurrency, self.head_bytes, self.connections
        if min(sizes) < 1 or min(self.body_seconds, self.head_seconds) <= 0:
            raise InvalidArgument(
                "a limit of the server is not positive", hint="Use numbers of at least 1"
            )


@dataclass(slots=True)
class _Remembered:
    """The answer to a request with an idempotency key."""

    print_: bytes
    made_ms: int
    answer: Answer | None = None
    lock: Lock = field(default_factory=Lock)


class CatalogApp:
    """The ASGI application of one lake."""

    def __init__(
        self,
        lake: Lake,
        *,
        tokens: Tokens | None = None,
        limits: ServerLimits | None = None,
        client_config: Mapping[str, str] | None = None,
        recorder: PrometheusRecorder | None = None,
    ) -> None:
        """Begin; without tokens everyone who can connect may read and write.

        `client_config` is returned with each table: what clients need to reach a bucket.
        """
        self._catalog = LakeCatalog(lake, client_config=client_config)
        self._clock = self._catalog.inside.clock
        self._tokens = tokens
        self.limits: Final = limits or ServerLimits()
        self.recorder = recorder or PrometheusRecorder()
        self._under_way = 0  # changed by the event loop only
        self.recorder.watch(lambda: [(SERVER_UNDER_WAY, self._under_way, {})])
        # Guarded by _lock.
        self._lock = Lock()
        self._remembered: OrderedDict[tuple[bytes, str], _Remembered] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        started = self._clock.monotonic()
        segments = _segments(scope)
        caller: Caller | None = None
        route: Route | None = None
        try:
            caller, route, answer = await self._answer(request, segments)
        except ClientDisconnect:
            return
        except Exception as error:
            refused = refusal_of(error)
            if refused.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                logger.error(  # noqa: TRY400 - errors of neve say what happened without a stack
                    "request failed cause=%s", error, exc_info=_unknown(error)
                )
            answer = Answer(status=refused.status, body=refused.body())
        seconds = self._clock.monotonic() - started
        self._count(request.method, route, answer, seconds)
        logger.info(
            "request method=%s path=%s status=%d bytes=%d seconds=%.4f caller=%s",
            request.method, _shown_path(scope), answer.status, len(answer.body), seconds,
            "-" if caller is None else caller.name,
        )  # fmt: skip
        await _response(request, answer)(scope, receive, send)

    async def _answer(
        self, request: Request, segments: tuple[str, ...]
    ) -> tuple[Caller | None, Route | None, Answer]:
        if segments == ("healthz",):
            return None, None, Answer(body=b"ok\n", media_type="text/plain")
        if segments == ("readyz",):
            return None, None, await run_in_threadpool(self._readiness)
        caller = self._caller(request)
        if segments == ("metrics",):
            _check_lake(caller)
            return caller, None, Answer(body=self.recorder.text().encode(), media_type=_PLAIN)
        route, params = _find(request.method, segments)
        if self._under_way >= self.limits.concurrency:
            self.recorder.add(SERVER_REFUSED, 1)
            raise RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE, UNAVAILABLE, "too many requests are under way"
            )
        self._under_way += 1
        try:
            call = Call(
                caller=caller,
                params=params,
                query=_query(request),
                headers=request.headers,
                body=await self._body(request),
            )
            return caller, route, await run_in_threadpool(self._handle, route, call)
        finally:
            self._under_way -= 1

    def _caller(self, request: Request) -> Caller:
        if self._tokens is None:
            return ANYONE
        given = request.headers.get("authorization", "")
        found = None
        if given[: len(_BEARER)].lower() == _BEARER:
            found = self._tokens.find(given[len(_BEARER) :].strip(), self._clock.now_ms())
        if found is None:
            raise RequestRefused(
                HTTPStatus.UNAUTHORIZED, NOT_AUTHORIZED, "the request has no valid bearer token"
            )
        return found

    async def _body(self, request: Request) -> bytes:
        limit = self.limits.body_bytes
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > limit:
            raise _too_large(limit)

        async def read() -> bytes:
            pieces: list[bytes] = []
            count = 0
            async for piece in request.stream():
                count += len(piece)
                if count > limit:
                    raise _too_large(limit)
                pieces.append(piece)
            return b"".join(pieces)

        try:
            body = await asyncio.wait_for(read(), self.limits.body_seconds)
        except TimeoutError as error:
            raise RequestRefused(
                HTTPStatus.REQUEST_TIMEOUT, BAD_REQUEST, "the body did not arrive in time"
            ) from error
        self.recorder.add(SERVER_BYTES_READ, len(body))
        return body

    def _handle(self, route: Route, call: Call) -> Answer:
        try:
            if "namespace" in call.params:
                call.check(route.access, call.namespace)
            key = call.headers.get("idempotency-key")
            if key is not None and route.access == "write":
                return self._once(key, route, call)
            return self._run(route, call)
        except Exception as error:
            refused = refusal_of(error, missing=route.missing)
            if refused.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            return Answer(status=refused.status, body=refused.body())

    def _run(self, route: Route, call: Call) -> Answer:
        if route.name not in _COMMITS:
            return route.handle(self._catalog, call)
        started = self._clock.monotonic()
        try:
            return route.handle(self._catalog, call)
        finally:
            self.recorder.add(SERVER_COMMIT_SECONDS, self._clock.monotonic() - started)

    def _once(self, key: str, route: Route, call: Call) -> Answer:
        """Answer a request with an idempotency key; a repetition gets the first answer."""
        if not key or len(key) > _KEY_CHARACTERS_MAX:
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST, BAD_REQUEST, "an idempotency key has 1 to 128 characters"
            )
        params = "\0".join(f"{name}={value}" for name, value in sorted(call.params.items()))
        query = "\0".join(f"{name}={value}" for name, value in sorted(call.query.items()))
        request = f"{route.name}\0{params}\0\0{query}\0".encode(errors="surrogatepass")
        print_ = blake2b(request + call.body).digest()
        kept = self._kept(call.caller.digest, key, print_)
        if kept.print_ != print_:
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST,
                BAD_REQUEST,
                "the idempotency key was used for another request",
            )
        with kept.lock:
            if kept.answer is None:
                try:
                    kept.answer = self._run(route, call)
                except Exception as error:
                    refused = refusal_of(error, missing=route.missing)
                    if refused.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                        raise
                    kept.answer = Answer(status=refused.status, body=refused.body())
            return kept.answer

    def _kept(self, caller: bytes, key: str, print_: bytes) -> _Remembered:
        now_ms = self._clock.now_ms()
        with self._lock:
            found = self._remembered.get((caller, key))
            if found is None or abs(now_ms - found.made_ms) > _IDEMPOTENT_MS:
                found = self._remembered[caller, key] = _Remembered(print_, now_ms)
            while len(self._remembered) > _IDEMPOTENT_MAX:
                self._remembered.popitem(last=False)
            return found

    def _readiness(self) -> Answer:
        try:
            self._catalog.inside.names()
        except NeveError:
            logger.warning("not ready location=%s", self._catalog.lake.location)
            return Answer(
                status=HTTPStatus.SERVICE_UNAVAILABLE,
                body=b"the lake cannot be read\n",
                media_type="text/plain",
            )
        return Answer(body=b"ready\n", media_type="text/plain")

    def _count(self, method: str, route: Route | None, answer: Answer, seconds: float) -> None:
        known = method if method in {"GET", "HEAD", "POST", "DELETE"} else "other"
        labels = {
            "route": "other" if route is None else route.name,
            "method": known,
            "status": str(int(answer.status)),
        }
        self.recorder.observe(SERVER_REQUEST_SECONDS, seconds, labels)
        self.recorder.add(SERVER_BYTES_SENT, len(answer.body))


def _segments(scope: Scope) -> tuple[str, ...]:
    """Return the segments of the path as they were sent, below where the application is mounted."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw.decode("latin-1").partition("?")[0]
    mounted = quote(scope.get("root_path", ""))
    if mounted and path.startswith(f"{mounted}/"):
        path = path.removeprefix(mounted)
    return tuple(path.strip("/").split("/"))


def _find(method: str, segments: tuple[str, ...]) -> tuple[Route, dict[str, str]]:
    for route in ROUTES:
        params = route.match(method, segments)
        if params is not None:
            return route, params
    raise RequestRefused(HTTPStatus.NOT_FOUND, NO_ROUTE, "there is no such route")


def _query(request: Request) -> dict[str, str]:
    try:
        return query_of(request.scope.get("query_string", b""))
    except ValueError as error:
        raise RequestRefused(
            HTTPStatus.BAD_REQUEST, BAD_REQUEST, "the query of the request is not valid"
        ) from error


def _check_lake(caller: Caller) -> None:
    if not caller.may("read", None):
        raise RequestRefused(
            HTTPStatus.FORBIDDEN, FORBIDDEN, "the token does not allow to read the whole lake"
        )


def _too_large(limit: int) -> RequestRefused:
    return RequestRefused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_LARGE, f"a body has at most {limit:,} bytes"
    )


def _unknown(error: Exception) -> bool:
    """Return whether the log needs the stack of an error: those of neve say what happened."""
    return not isinstance(error, NeveError | RequestRefused)


def _shown_path(scope: Scope) -> str:
    """Return the path for the log: without the query, and without line breaks."""
    return quote(str(scope["path"])[:500], safe="/%.-_~")


def _response(request: Request, answer: Answer) -> Response:
    headers = dict(answer.headers)
    if answer.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    is_empty = answer.status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}
    body = b"" if is_empty or request.method == "HEAD" else answer.body
    media = None if is_empty else answer.media_type
    return Response(body, status_code=int(answer.status), headers=headers, media_type=media)


async def _live(receive: Receive, send: Send) -> None:
    """Take part in the host's start and stop."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
