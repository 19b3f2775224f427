"""LakeServer: uvicorn around `CatalogApp`, in a thread of this process or as the whole of it.

    with lake.serve() as server:
        catalog = load_catalog("lake", uri=server.url)

1. Check the address: one that other machines can reach needs tokens.
2. Open the socket, so that `port=0` has its number before anything else happens.
3. Run until closed: no new connections, requests under way are finished, for some seconds.
"""

import ipaddress
import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from threading import Event, Thread
from typing import Any, Final

import uvicorn

from neve.catalog.lake import Lake
from neve.errors import InvalidArgument, Unavailable
from neve.observability.prometheus import PrometheusRecorder
from neve.server.http_app import CatalogApp, ServerLimits
from neve.server.tokens import Tokens
from neve.storage.own_process import Handle

logger = logging.getLogger(__name__)

_START_SECONDS: Final = 30.0
_GRACE_SECONDS: Final = 20


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


class LakeServer(Handle):
    """A server that runs in a thread; close it when done."""

    def __init__(
        self, app: CatalogApp, *, host: str, port: int, tls: Tls | None, has_tokens: bool
    ) -> None:
        """Start; returns when the server answers. Raises InvalidArgument, Unavailable."""
        _check_address(host, has_tokens=has_tokens)
        self.app = app
        self._socket = _listening(host, port)
        self.port: Final = int(self._socket.getsockname()[1])
        self._scheme = "http" if tls is None else "https"
        self._host = host
        self._server = _Uvicorn(_config(app, tls))
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
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    config.load()
    protocol: Any = config.http_protocol_class

    def __init__(self: Any, *given: Any, **named: Any) -> None:  # noqa: ANN401, N807
        protocol.__init__(self, *given, **named)
        # Whatever the program logs: uvicorn's own lines show queries, which may hold secrets.
        self.access_log = False

    config.http_protocol_class = type("QuietProtocol", (protocol,), {"__init__": __init__})
    return config


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
