"""LakeServer: uvicorn around `CatalogApp`, in a thread of this process or as the whole of it.

    with lake.serve() as server:
        catalog = load_catalog("lake", uri=server.url)

1. Check the address: one that other machines can reach needs tokens.
2. Open the socket, so that `port=0` has its number before anything else happens.
3. Run until closed: no new connections, requests under way are finished, for some seconds.

Before a token is known a client gets little: a bounded number of connections, and bounded time and
bytes for the head of a request.
"""

import asyncio
import ipaddress
import logging
import resource
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from neve.catalog.lake import Lake
from neve.errors import InvalidArgument, Unavailable
from neve.observability.metrics import SERVER_REFUSED
from neve.observability.prometheus import PrometheusRecorder
from neve.server.http_app import CatalogApp, ServerLimits
from neve.server.tokens import Tokens
from neve.storage.own_process import Handle

logger = logging.getLogger(__name__)

_START_SECONDS: Final = 30.0
_GRACE_SECONDS: Final = 20
_FILES_MANY: Final = 1 << 20
# The event loop accepts this many at once, and counts them some turns later.
_ACCEPTED_MAX: Final = 128
_HEADER_BYTES: Final = 4  # a colon, a space and the end of the line


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """A certificate and its key, in files of PEM."""

    certificate: str
    key: str


class _Uvicorn(uvicorn.Server):
    """uvicorn in any thread: it reports that it has started, and handles no signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets=sockets)
        self.is_up.set()


class _Connection(HttpToolsProtocol):
    """One connection of a client: what comes before the application is bounded."""

    def __init__(self, *, catalog: CatalogApp, **given: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(**given)
        # Whatever the program logs: uvicorn's own lines show queries, which may hold secrets.
        self.access_log = False
        self._catalog = catalog
        self._limits = catalog.limits
        self._deadline: asyncio.TimerHandle | None = None
        self._begun = 0
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._is_in_head = True
        self._is_in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > _connections_max(self._limits.connections):
            self._catalog.recorder.add(SERVER_REFUSED, 1)
            transport.abort()
        else:
            self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came; a head that becomes too large is refused."""
        begun, is_in_head = self._begun, self._is_in_head
        super().data_received(data)
        is_same = self._begun == max(begun, 1)
        if is_in_head and self._is_in_head and is_same and not self.transport.is_closing():
            self._unparsed_bytes += len(data)
            if self._unparsed_bytes > self._limits.head_bytes:
                self._refuse_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, or a head that is too large."""
        if self._head_bytes > self._limits.head_bytes:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._begun += 1
        self._is_in_head = True
        self._head_bytes = self._unparsed_bytes = 0
        if self._deadline is None:
            self._expect_more()

    def on_url(self, url: bytes) -> None:
        """Take a part of the path."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._count_head(len(name) + len(value) + _HEADER_BYTES)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request to the application."""
        self._expect_nothing()
        self._is_in_head = False
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Take the end of a body."""
        self._is_in_body = False
        self._expect_nothing()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Answered; the rest of a body that nothing reads must end soon."""
        super().on_response_complete()
        if self._is_in_body and self._deadline is None:
            self._expect_more()

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.head_bytes:
            raise ValueError("the head is too large")  # the parser stops, `send_400_response` runs

    def _refuse_head(self) -> None:
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
            b"content-length: 0\r\nconnection: close\r\n\r\n"
        )
        self.transport.close()

    def _expect_more(self) -> None:
        self._deadline = self.loop.call_later(self._limits.head_seconds, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class LakeServer(Handle):
    """A server that runs in a thread; close it when done."""

    def __init__(
        self, app: CatalogApp, *, host: str, port: int, tls: Tls | None, has_tokens: bool
    ) -> None:
        """Start; returns when the server answers. Raises InvalidArgument, Unavailable."""
        _check_address(host, has_tokens=has_tokens)
        config = _config(app, tls)
        self.app = app
        self._socket = _listening(host, port)
        self.port: Final = int(self._socket.getsockname()[1])
        self._scheme = "http" if tls is None else "https"
        self._host = host
        self._server = _Uvicorn(config)
        self._thread = Thread(target=self._run, name="neve-server", daemon=True)
        self._failure: BaseException | None = None
        self._thread.start()
        if not self._server.is_up.wait(_START_SECONDS) or self._failure is not None:
            self.close()
            raise Unavailable(f"the server did not start: {self._failure}") from self._failure
        logger.info("serving url=%s tokens=%s", self.url, has_tokens)

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except BaseException as error:  # noqa: BLE001 - the starting thread raises it
            self._failure = error
        finally:
            self._server.is_up.set()

    def __repr__(self) -> str:
        return f"LakeServer({self.url!r})"

    @property
    def url(self) -> str:
        """Address of the catalog, for clients."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self.port}"

    def wait(self) -> None:
        """Wait until the server ends."""
        self._thread.join()

    def close(self) -> None:
        """Finish the requests under way, and stop; twice is not an error."""
        self._server.should_exit = True
        self._thread.join(_GRACE_SECONDS + _START_SECONDS)
        self._socket.close()


def serve(
    lake: Lake,
    *,
    host: str,
    port: int,
    tokens: str | PathLike[str] | None,
    tls: tuple[str, str] | None,
    limits: Mapping[str, float],
    client_config: Mapping[str, str] | None,
    recorder: PrometheusRecorder | None,
) -> LakeServer:
    """Serve a lake in a thread; this is `lake.serve`. Limits are those of `ServerLimits`."""
    known = None if tokens is None else Tokens.read(fspath(tokens))
    default = ServerLimits()
    app = CatalogApp(
        lake,
        tokens=known,
        limits=ServerLimits(
            body_bytes=int(limits.get("body_bytes", default.body_bytes)),
            body_seconds=limits.get("body_seconds", default.body_seconds),
            concurrency=int(limits.get("concurrency", default.concurrency)),
        ),
        client_config=client_config,
        recorder=recorder,
    )
    pair = None if tls is None else Tls(certificate=tls[0], key=tls[1])
    return LakeServer(app, host=host, port=port, tls=pair, has_tokens=known is not None)


def _config(app: CatalogApp, tls: Tls | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http="httptools",
        backlog=min(_ACCEPTED_MAX, max(1, _files_max() // 16)),
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    if tls is not None:
        _check_readable(tls.certificate, what="certificate")
        _check_readable(tls.key, what="key")
    try:
        config.load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        if tls is None:
            raise
        raise InvalidArgument(
            f"the certificate and its key cannot be used: {_reason(error)}",
            path=f"{tls.certificate}, {tls.key}",
            hint="Pass a certificate and the key that belongs to it, both as PEM",
        ) from error
    config.http_protocol_class = partial(_Connection, catalog=app)  # type: ignore[assignment]
    return config


def _check_readable(path: str, *, what: str) -> None:
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"the {what} cannot be read: {_reason(error)}", path=path, hint="Pass a file of PEM"
        ) from error


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is not PEM"
    return str(getattr(error, "strerror", None) or error)


def _connections_max(wanted: int) -> int:
    """Return how many connections may be open; the lake needs files, too."""
    return max(1, min(wanted, _files_max() // 2))


def _files_max() -> int:
    """Return how many files this process may have open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _FILES_MANY if limit == resource.RLIM_INFINITY else limit


def _check_address(host: str, *, has_tokens: bool) -> None:
    if has_tokens or host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise InvalidArgument(
            f"the address {host!a} can be reached by others, and the server has no tokens",
            hint="Pass tokens, a file, or listen on 127.0.0.1",
        )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol: asyncio turns off delays only for sockets that say that they are TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise Unavailable(
            f"cannot listen on {host} port {port}: {error}", hint="Choose another port"
        ) from error
    return listening
