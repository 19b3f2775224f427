"""Who may do what, what a server refuses, and what it shows about itself."""

import hashlib
import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog

import neve
from neve.catalog.running_server import RunningServer
from neve.observability.prometheus import PrometheusRecorder
from neve.server.http_app import CatalogApp, ServerLimits
from neve.server.http_server import LakeServer
from tests.integration.rest_requests import Client, make_orders, orders, served

WRITER = "writer-0123456789abcdef"
READER = "reader-0123456789abcdef"
EUROPE = "europe-0123456789abcdef"
ORDERS = "/v1/namespaces/shop/tables/orders"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    digest = hashlib.sha256(READER.encode()).hexdigest()
    past = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    path = tmp_path / "tokens.toml"
    path.write_text(
        f"""
[[token]]
name = "writer"
token = "{WRITER}"
scopes = ["write"]

[[token]]
name = "reader"
sha256 = "{digest}"
scopes = ["read"]

[[token]]
name = "europe"
token = "{EUROPE}"
scopes = ["write:eu"]

[[token]]
name = "old"
token = "expired-0123456789abcdef"
scopes = ["write"]
expires = {past}
"""
    )
    return path


@pytest.fixture
def guarded(tmp_path: Path, tokens: Path) -> Iterator[tuple[neve.Lake, RunningServer]]:
    with served(tmp_path / "lake", tokens=tokens) as (lake, _, server):
        make_orders(lake)
        make_orders(lake, "eu.orders")
        yield lake, server


def test_a_request_needs_a_valid_token(guarded: tuple[neve.Lake, RunningServer]) -> None:
    _, server = guarded
    for token in (None, "", "wrong", WRITER[:-1], "expired-0123456789abcdef", "é"):
        shown = None if token is None else token.encode().decode("latin-1")
        refused = Client(server, shown).get("/v1/config")
        assert refused.error == (401, "NotAuthorizedException")
        assert refused.headers["www-authenticate"] == "Bearer"
    assert Client(server, WRITER).get("/v1/config").status == 200
    assert Client(server).get("/healthz").body == b"ok\n"
    assert Client(server).get("/readyz").body == b"ready\n"
    assert Client(server).get("/metrics").error == (401, "NotAuthorizedException")


def test_scopes_bound_what_a_token_may_do(guarded: tuple[neve.Lake, RunningServer]) -> None:
    lake, server = guarded
    reader, europe = Client(server, READER), Client(server, EUROPE)

    assert reader.get(ORDERS).status == 200
    assert reader.send("DELETE", ORDERS).error == (403, "ForbiddenException")
    made = reader.post("/v1/namespaces", {"namespace": ["mine"]})
    assert made.error == (403, "ForbiddenException")
    assert europe.get(ORDERS).error == (403, "ForbiddenException")
    assert europe.get("/v1/namespaces/eu/tables/orders").status == 200
    assert europe.get("/v1/namespaces").json["namespaces"] == [["eu"]]
    assert europe.post("/v1/namespaces", {"namespace": ["eu", "x"]}).status == 200
    assert europe.post("/v1/namespaces", {"namespace": ["europe"]}).status == 403
    rename = {
        "source": {"namespace": ["eu"], "name": "orders"},
        "destination": {"namespace": ["shop"], "name": "stolen"},
    }
    assert europe.post("/v1/tables/rename", rename).error == (403, "ForbiddenException")
    commit = {
        "table-changes": [
            {
                "identifier": {"namespace": ["shop"], "name": "orders"},
                "requirements": [],
                "updates": [],
            }
        ]
    }
    assert europe.post("/v1/transactions/commit", commit).error == (403, "ForbiddenException")
    assert europe.get("/metrics").error == (403, "ForbiddenException")
    assert lake.table_exists("shop.orders")


def test_a_token_registers_no_metadata_of_a_namespace_that_it_cannot_read(
    guarded: tuple[neve.Lake, RunningServer],
) -> None:
    lake, server = guarded
    columns = [{"id": 1, "name": "a", "type": "long", "required": False}]
    body = {"name": "clicks", "schema": {"type": "struct", "schema-id": 0, "fields": columns}}
    writer, europe = Client(server, WRITER), Client(server, EUROPE)
    assert writer.post("/v1/namespaces/shop/tables", body).status == 200
    theirs = lake.guests.load("shop.clicks").metadata_location

    taken = {"name": "mine", "metadata-location": theirs}
    for wrong in (theirs, f"{theirs}.no"):
        given = {**taken, "metadata-location": wrong}
        refused = europe.post("/v1/namespaces/eu/register", given)
        assert refused.error == (403, "ForbiddenException")
        assert "shop" not in refused.body.decode()
    assert writer.post("/v1/namespaces/eu/register", taken).status == 200


def test_pages_show_only_names_that_a_token_sees(
    guarded: tuple[neve.Lake, RunningServer],
) -> None:
    lake, server = guarded
    lake.create_namespace("another")
    europe, reader = Client(server, EUROPE), Client(server, READER)

    assert europe.get("/v1/namespaces?pageSize=1").json == {
        "namespaces": [["eu"]],
        "next-page-token": None,
    }
    assert europe.get("/v1/namespaces?parent=shop").error == (403, "ForbiddenException")
    assert europe.get("/v1/namespaces?parent=none").error == (403, "ForbiddenException")
    first = reader.get("/v1/namespaces?pageSize=1").json
    assert first["namespaces"] == [["another"]]
    assert "another" not in first["next-page-token"]
    wrong = reader.get("/v1/namespaces?pageSize=1&pageToken=%C3%A4")
    assert wrong.error == (400, "BadRequestException")


def test_a_remembered_answer_is_for_one_token_and_one_request(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(
        f'[[token]]\nname = "same"\ntoken = "{WRITER}"\nscopes = ["write"]\n'
        f'[[token]]\nname = "same"\ntoken = "{EUROPE}"\nscopes = ["write:eu"]\n'
    )
    with served(tmp_path / "lake", tokens=path) as (lake, _, server):
        make_orders(lake)
        writer, europe = Client(server, WRITER), Client(server, EUROPE)
        rename = {
            "source": {"namespace": ["shop"], "name": "orders"},
            "destination": {"namespace": ["shop"], "name": "new"},
        }
        assert writer.post("/v1/tables/rename", rename, Idempotency_Key="k").status == 204
        assert europe.post("/v1/tables/rename", rename, Idempotency_Key="k").status == 403
        gone = "/v1/namespaces/shop/tables/new"
        headers = {"Idempotency-Key": "d"}
        assert writer.send("DELETE", gone, headers=headers).status == 204
        purge = writer.send("DELETE", f"{gone}?purgeRequested=true", headers=headers)
        assert purge.error == (400, "BadRequestException")


def test_pyiceberg_sends_its_token(guarded: tuple[neve.Lake, RunningServer]) -> None:
    lake, server = guarded
    catalog = RestCatalog("lake", uri=server.url, token=WRITER)
    catalog.load_table("shop.orders").append(orders({100: "x"}))

    assert lake.table("shop.orders").get(100) is not None


def test_no_secret_is_logged(
    guarded: tuple[neve.Lake, RunningServer], caplog: pytest.LogCaptureFixture
) -> None:
    _, server = guarded
    with caplog.at_level(logging.DEBUG):
        Client(server, WRITER).get(f"{ORDERS}?token=in-the-query")
        Client(server, "wrong-secret-token-xyz").get(ORDERS)
        Client(server, WRITER).get("/v1/a%0Ab")

    text = "\n".join(each.getMessage() for each in caplog.records if each.name[:4] != "urll")
    assert "caller=writer" in text
    assert "status=401" in text
    assert not re.search(r"0123456789abcdef|in-the-query|wrong-secret", text)
    assert "/v1/a\nb" not in text


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "no tokens"),
        ("[[token]\n", "not TOML"),
        ('[[token]]\nname = "a"\nscopes = ["read"]\n', "has no token"),
        ('[[token]]\nname = "a"\ntoken = "short"\nscopes = ["read"]\n', "too short"),
        (f'[[token]]\nname = "a"\ntoken = "{WRITER}"\nscopes = ["fly"]\n', "unknown scope"),
        (f'[[token]]\nname = "a"\ntoken = "{WRITER}"\nscopes = ["write:"]\n', "no namespace"),
        (f'[[token]]\nname = "a"\ntoken = "{WRITER}"\nscopes = ["read:a..b"]\n', "no namespace"),
        (f'[[token]]\nname = "a"\ntoken = "{WRITER}"\n', "no scopes"),
        (f'[[token]]\ntoken = "{WRITER}"\nscopes = ["read"]\n', "no name"),
        (f'[[token]]\nname = "a"\ntoken = "{WRITER}"\nscope = "read"\n', "unknown field"),
    ],
)
def test_a_wrong_file_of_tokens_is_refused_without_showing_it(
    tmp_path: Path, content: str, what: str
) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(content)
    with neve.open(tmp_path / "lake") as lake:
        with pytest.raises(neve.InvalidArgument, match=what) as caught:
            lake.serve(tokens=path)
        assert WRITER not in str(caught.value)


def test_a_public_address_needs_tokens(tmp_path: Path, tokens: Path) -> None:
    with neve.open(tmp_path / "lake") as lake:
        for host in ("0.0.0.0", "::", "192.168.1.1", "example.org"):  # noqa: S104
            with pytest.raises(neve.InvalidArgument, match="no tokens"):
                lake.serve(host)
        with lake.serve("0.0.0.0", tokens=tokens):  # noqa: S104
            pass
        with pytest.raises(neve.Unavailable, match="cannot listen"):
            lake.serve(port=70_000)


def test_large_and_slow_bodies_are_refused(tmp_path: Path) -> None:
    with served(tmp_path / "lake", body_bytes=1_000, body_seconds=0.2) as (lake, client, server):
        large = client.post("/v1/namespaces", b"x" * 1_001)
        assert large.error == (413, "RequestTooLargeException")
        address = server.url.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1])), timeout=30) as slow:
            slow.sendall(b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
            assert b"408" in slow.recv(1_000).split(b"\r\n")[0]
        assert lake.list_namespaces() == []


@contextmanager
def bounded(folder: Path, limits: ServerLimits) -> Iterator[tuple[str, int]]:
    with (
        neve.open(folder) as lake,
        LakeServer(
            CatalogApp(lake, limits=limits), host="127.0.0.1", port=0, tls=None, has_tokens=False
        ) as server,
    ):
        yield "127.0.0.1", server.port


def test_a_client_that_sends_no_head_is_sent_away(tmp_path: Path) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    limits = ServerLimits(head_seconds=0.3)
    with bounded(tmp_path / "lake", limits) as address:
        for sent in (b"", whole[:-2], whole + whole[:-2]):
            with socket.create_connection(address, timeout=30) as slow:
                slow.sendall(sent)
                received = b""
                while piece := slow.recv(1_000):
                    received += piece
                assert received.count(b" 200 ") == sent.count(b"\r\n\r\n")
        # After an answer before the whole body came, the rest has as long.
        with socket.create_connection(address, timeout=30) as slow:
            slow.sendall(b"POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
            while slow.recv(1_000):
                pass


def test_a_large_head_is_refused(tmp_path: Path) -> None:
    start = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    with bounded(tmp_path / "lake", ServerLimits(head_bytes=2_000)) as address:
        large = (
            start + b"X: " + b"y" * 3_000,
            start + b"".join(b"X-%d: y\r\n" % number for number in range(400)) + b"\r\n",
            b"GET /" + b"a" * 3_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        )
        for head in large:
            with socket.create_connection(address, timeout=30) as sender:
                sender.sendall(head)
                assert b" 431 " in sender.recv(1_000).split(b"\r\n")[0]
        with socket.create_connection(address, timeout=30) as sender:
            sender.sendall(start + b"X: " + b"y" * 1_000 + b"\r\n\r\n")
            assert b" 200 " in sender.recv(1_000).split(b"\r\n")[0]


def wait_until_healthy(address: tuple[str, int]) -> None:
    """Connect until the server has room, when those that sent nothing are gone."""
    while True:
        with suppress(ConnectionError), socket.create_connection(address, timeout=30) as later:
            later.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            if b" 200 " in later.recv(1_000):
                return


def test_connections_are_bounded(tmp_path: Path) -> None:
    limits = ServerLimits(head_seconds=0.3, connections=2)
    with bounded(tmp_path / "lake", limits) as address, ExitStack() as held:
        for _ in range(8):
            opened = held.enter_context(socket.create_connection(address, timeout=30))
        with suppress(ConnectionResetError):
            assert opened.recv(100) == b""
        wait_until_healthy(address)


def test_too_many_calls_at_once_are_refused(tmp_path: Path) -> None:
    with served(tmp_path / "lake", concurrency=1, body_seconds=60.0) as (_, client, server):
        address = server.url.removeprefix("http://").split(":")
        with socket.create_connection((address[0], int(address[1])), timeout=30) as slow:
            slow.sendall(b"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            while client.get("/v1/config").status != 503:
                pass
            busy = client.get("/v1/config")
            assert busy.error == (503, "ServiceUnavailableException")
            assert busy.headers["retry-after"] == "1"
            assert client.get("/healthz").status == 200


def test_a_request_with_an_idempotency_key_is_done_once(tmp_path: Path) -> None:
    with served(tmp_path / "lake") as (_, client, _server):
        body = {"namespace": ["shop"]}
        first = client.post("/v1/namespaces", body, Idempotency_Key="k1")
        again = client.post("/v1/namespaces", body, Idempotency_Key="k1")
        other = client.post("/v1/namespaces", {"namespace": ["x"]}, Idempotency_Key="k1")

        assert (first.status, again.status) == (200, 200)
        assert first.body == again.body
        assert other.error == (400, "BadRequestException")
        assert client.post("/v1/namespaces", body).error == (409, "AlreadyExistsException")


def test_metrics_have_requests_and_the_work_of_tables(tmp_path: Path) -> None:
    recorder = PrometheusRecorder()
    with (
        neve.open(tmp_path / "lake", recorder=recorder) as lake,
        lake.serve(recorder=recorder) as server,
    ):
        make_orders(lake)
        client = Client(server)
        client.get(ORDERS)
        text = client.get("/metrics").body.decode()

    assert 'neve_server_request_seconds_count{method="GET",route="table",status="200"} 1' in text
    assert "neve_engine_flush_seconds_bucket" in text
    assert 'neve_wal_rows_total{table="shop.orders"} 30' in text


def test_https_is_spoken_with_a_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    with neve.open(tmp_path / "lake") as lake, lake.serve(tls=(str(certificate), str(key))) as up:
        assert up.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        connection = HTTPSConnection(up.url.removeprefix("https://"), context=context, timeout=30)
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b"ok\n"
        connection.close()


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    text = tmp_path / "text.pem"
    text.write_text("not a certificate")
    missing = tmp_path / "missing.pem"
    with neve.open(tmp_path / "lake") as lake:
        for pair, what in (
            ((missing, text), "missing.pem"),
            ((text, missing), "missing.pem"),
            ((text, text), "text.pem"),
        ):
            with pytest.raises(neve.InvalidArgument, match=what):
                lake.serve(tls=(str(pair[0]), str(pair[1])))


def test_a_call_under_way_is_finished_before_the_server_stops(tmp_path: Path) -> None:
    with neve.open(tmp_path / "lake") as lake:
        server = lake.serve(concurrency=1)
        address = server.url.removeprefix("http://").split(":")
        body = b'{"namespace": ["shop"]}'
        head = f"POST /v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((address[0], int(address[1])), timeout=30) as under_way:
            under_way.sendall(head.encode() + body[:5])
            while Client(server).get("/v1/config").status != 503:
                pass
            closing = threading.Thread(target=server.close)
            closing.start()
            under_way.sendall(body[5:])
            assert b" 200 " in under_way.recv(1_000).split(b"\r\n")[0]
            closing.join()
        server.close()
        assert lake.list_namespaces() == ["shop"]


def test_the_command_serves_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    with neve.open(tmp_path / "lake") as lake:
        make_orders(lake).close()
    process = subprocess.Popen(
        [sys.executable, "-m", "neve", "-v", "serve", "--lake", str(tmp_path / "lake"),
         "--port", "0", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = re.search(r"http://[0-9.:]+", process.stdout.readline() + process.stdout.readline())
        assert url is not None
        found = RestCatalog("lake", uri=url.group()).load_table("shop.orders")
        assert found.scan().to_arrow().num_rows == 30
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        assert process.returncode == 0, log
        assert "route" not in log
        assert "request method=GET" in log
    finally:
        process.kill()
        process.wait()


def test_a_flood_of_connections_takes_no_files_from_the_lake(tmp_path: Path) -> None:
    neve.open(tmp_path / "lake").close()
    command = (
        "import resource, sys; from neve.__main__ import main;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)); main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", command, "serve", "--lake", str(tmp_path / "lake"), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = re.search(r"http://([0-9.]+):([0-9]+)", process.stdout.readline())
        assert url is not None
        address = url[1], int(url[2])
        with ExitStack() as held:
            for _ in range(250):
                held.enter_context(socket.create_connection(address, timeout=30))
        wait_until_healthy(address)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        assert (process.returncode, log) == (0, "")
    finally:
        process.kill()
        process.wait()
