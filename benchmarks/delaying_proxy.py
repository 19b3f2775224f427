"""DelayingProxy: an HTTP proxy in front of one server that delays and counts requests.

Every request waits for the same time before it is passed on, as it would on the way to a distant
server; waiting ones do not hold up others. Bytes are passed on as they came: clients have signed
them. `GET /-/requests` returns how many requests there were, by kind, as JSON; it is neither
delayed nor counted. Kinds are those that S3 prices.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from threading import Thread
from typing import Final, Self

COUNT_PATH: Final = "/-/requests"
_HEAD_BYTES_MAX: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 18
_WITHOUT_BODY: Final = frozenset({204, 304})
_INFORMATIONAL: Final = range(100, 200)


class DelayingProxy:
    """A proxy in a thread of its own; each delay has a port."""

    def __init__(self, host: str, port: int, delays_ms: tuple[int, ...]) -> None:
        self._host = host
        self._port = port
        self._counts = {delay: Counter[str]() for delay in delays_ms}
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._servers: list[asyncio.Server] = []
        self.ports: dict[int, int] = {}
        """Where each delay is, in milliseconds."""

    def __enter__(self) -> Self:
        self._thread.start()
        for delay in self._counts:
            begun = asyncio.run_coroutine_threadsafe(self._listen(delay), self._loop)
            self.ports[delay] = begun.result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _listen(self, delay: int) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                with suppress(OSError, EOFError, ValueError):
                    await self._serve(delay, reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=_HEAD_BYTES_MAX)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _serve(
        self, delay: int, client: asyncio.StreamReader, answers: asyncio.StreamWriter
    ) -> None:
        upstream, requests = await asyncio.open_connection(
            self._host, self._port, limit=_HEAD_BYTES_MAX
        )
        try:
            while True:
                head = await client.readuntil(b"\r\n\r\n")
                method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                if path == COUNT_PATH:
                    answers.write(_counted(self._counts[delay]))
                    continue
                fields = _fields(head)
                if "expect" in fields:
                    answers.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = b"".join([piece async for piece in _body(client, fields, is_request=True)])
                self._counts[delay][_kind(method, path)] += 1
                await asyncio.sleep(delay / 1_000)
                requests.write(head + body)
                await _pass_answer(upstream, answers, is_head=method == "HEAD")
        finally:
            requests.close()


def _kind(method: str, path: str) -> str:
    query = path.partition("?")[2]
    if method == "GET":
        return "list" if "list-type=" in query else "get"
    is_delete = method == "DELETE" or (method == "POST" and query.startswith("delete"))
    return "delete" if is_delete else "head" if method == "HEAD" else "put"


def _counted(counts: Mapping[str, int]) -> bytes:
    text = json.dumps(counts)
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


async def _pass_answer(
    upstream: asyncio.StreamReader, answers: asyncio.StreamWriter, *, is_head: bool
) -> None:
    """Pass one answer on, and skip those that only say to go on."""
    status = _INFORMATIONAL.start
    while status in _INFORMATIONAL:
        head = await upstream.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
    answers.write(head)
    if not is_head and status not in _WITHOUT_BODY:
        async for piece in _body(upstream, _fields(head), is_request=False):
            answers.write(piece)
            await answers.drain()
    await answers.drain()


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, value in pairs}


async def _body(reader: asyncio.StreamReader, fields: dict[str, str], *, is_request: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Yield the body of a message as it came, with the lines around its chunks."""
    if fields.get("transfer-encoding", "").lower() == "chunked":
        length = -1
        while length:
            line = await reader.readuntil(b"\r\n")
            length = int(line.split(b";")[0], 16)
            yield line + await reader.readexactly(length + 2)
    elif "content-length" in fields:
        left = int(fields["content-length"])
        while left:
            piece = await reader.read(min(left, _PIECE_BYTES))
            if not piece:
                raise EOFError
            left -= len(piece)
            yield piece
    elif not is_request:
        while piece := await reader.read(_PIECE_BYTES):
            yield piece
