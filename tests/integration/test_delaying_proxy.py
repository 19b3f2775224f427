"""The proxy of the bucket benchmarks passes everything on, counts requests, and delays them."""

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

import neve
from benchmarks.delaying_proxy import COUNT_PATH, DelayingProxy
from neve.errors import NotFound
from neve.storage.object_store import ObjectStore
from neve.storage.open_store import open_store
from neve.testing.s3_servers import S3Endpoint

pytestmark = pytest.mark.s3

DELAY_MS = 30


@pytest.fixture
def proxy(seaweed: S3Endpoint) -> Iterator[DelayingProxy]:
    place = urlsplit(seaweed.endpoint)
    assert place.hostname is not None
    assert place.port is not None
    with DelayingProxy(place.hostname, place.port, (0, DELAY_MS)) as running:
        yield running


def counted(proxy: DelayingProxy, delay: int) -> dict[str, int]:
    url = f"http://127.0.0.1:{proxy.ports[delay]}{COUNT_PATH}"
    with urllib.request.urlopen(url) as answer:
        found: dict[str, int] = json.loads(answer.read())
        return found


def options_at(at: S3Endpoint, proxy: DelayingProxy, delay: int) -> dict[str, str]:
    endpoint = f"http://127.0.0.1:{proxy.ports[delay]}"
    return {**at.storage_options(listing="unordered"), "endpoint": endpoint}


@pytest.fixture
def store(seaweed: S3Endpoint, proxy: DelayingProxy, prefix: str) -> ObjectStore:
    given = options_at(seaweed, proxy, DELAY_MS)
    return open_store(seaweed.location(prefix), storage_options=given)


def test_objects_of_any_size_pass_and_each_request_counts(
    proxy: DelayingProxy, store: ObjectStore
) -> None:
    payloads = {f"o/{size}": os.urandom(size) for size in (0, 1, 100_000, 3_000_000)}
    for path, payload in payloads.items():
        store.put(path, payload)
        assert store.get(path).payload == payload
    assert store.get_range("o/100000", start=10, length=5) == payloads["o/100000"][10:15]
    assert store.size("o/3000000") == 3_000_000
    with pytest.raises(NotFound):
        store.get("o/missing")

    store.delete("o/1")
    assert [info.size for info in store.list("o/")] == [0, 100_000, 3_000_000]

    gets = len(payloads) + 2
    assert counted(proxy, DELAY_MS) == {
        "put": len(payloads),
        "get": gets,
        "head": 1,
        "delete": 1,
        "list": 1,
    }
    assert counted(proxy, 0) == {}


def test_requests_wait_side_by_side(store: ObjectStore) -> None:
    store.put("warm", b"x")
    began_at = time.perf_counter()
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda number: store.put(f"o/{number}", b"x"), range(20)))
    seconds = time.perf_counter() - began_at

    assert seconds >= DELAY_MS / 1_000
    assert seconds < 20 * DELAY_MS / 1_000 + 10


def test_a_table_works_behind_it(seaweed: S3Endpoint, proxy: DelayingProxy, prefix: str) -> None:
    given = options_at(seaweed, proxy, 0)
    with neve.open(seaweed.location(prefix), storage_options=given) as lake:
        table = lake.create_table("a.b", {"id": int, "v": int}, "id")
        table.upsert([{"id": number, "v": 1} for number in range(1_000)])
        table.flush()
        assert table.scan().count() == 1_000
    assert sum(counted(proxy, 0).values()) > 10
