"""CloudStore without a server: on obstore's memory store, on a dead port, and without obstore."""

import socket
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import GenericError, PermissionDeniedError
from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store

from neve.errors import InvalidArgument, LimitExceeded, Unavailable
from neve.storage.cloud_client import Verdict, _attempt, _tag
from neve.storage.cloud_options import Listing, parse_s3_options
from neve.storage.cloud_store import CloudStore, open_cloud
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import check_object_path
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.store_contract import ObjectStoreContract

DEBUG_FORM = """Generic S3 error: Server returned non-2xx status code: <Token-0>s3cr3t</Token-0>

Debug source:
Generic {{
    store: "S3",
    source: RetryError(
        RetryErrorImpl {{
            method: PUT,
            inner: {inner}
        }},
    ),
}}"""


def status_error(status: int, code: str = "SomeCode") -> GenericError:
    body = f'"<Error><Code>{code}</Code><Token-0>s3cr3t</Token-0></Error>"'
    inner = f"Status {{\n                status: {status},\n                body: Some({body}),"
    return GenericError(DEBUG_FORM.format(inner=inner))


class TestOnObstoresMemory(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return CloudStore(MemoryStore())


class TestUnorderedListing(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return CloudStore(MemoryStore(), listing=Listing.UNORDERED)


@given(st.text(min_size=1, max_size=40))
def test_every_allowed_path_is_a_path_to_the_client(path: str) -> None:
    try:
        check_object_path(path)
    except InvalidArgument:
        return
    store = CloudStore(MemoryStore())

    store.put(path, b"x")

    assert [info.path for info in store.list("")] == [path]
    assert list(store.list("", after=path)) == []
    assert store.get(path).payload == b"x"


@pytest.mark.parametrize("listing", Listing)
def test_names_that_no_object_has_are_left_out_of_listings(listing: Listing) -> None:
    bucket = MemoryStore()
    for path in ("a/LOCK", "a/.lock", "a/.tmp-1", "LOCK", ".lock"):
        bucket.put(path, b"copied from a disk")
    store = CloudStore(bucket, listing=listing)
    store.put("a/LOCKS", b"")
    store.put("b", b"")

    assert [info.path for info in store.list("")] == ["a/LOCKS", "b"]


@pytest.mark.parametrize("after", ["a/", "a/.", "a/..", ".", "..", ""])
def test_a_listing_may_begin_behind_what_is_no_path(after: str) -> None:
    store = CloudStore(MemoryStore())
    for path in ("a/-", "a/b", "b"):
        store.put(path, b"")

    found = [info.path for info in store.list("", after=after)]

    assert found == [path for path in ("a/-", "a/b", "b") if path > after]


@pytest.mark.parametrize("tag", ["", "line\nbreak", "nul\0", "ü", "x" * 1_025])
def test_a_tag_that_no_header_can_hold_is_refused(tag: str) -> None:
    store = CloudStore(MemoryStore())
    store.put("object", b"x")

    with pytest.raises(InvalidArgument):
        store.put_if_match("object", b"y", tag=tag)
    with pytest.raises(InvalidArgument):
        store.get_if_changed("object", tag=tag)


def test_an_object_over_the_limit_is_neither_written_nor_read() -> None:
    bucket = MemoryStore()
    CloudStore(bucket).put("large", b"x" * 11)
    store = CloudStore(bucket, object_bytes_max=10)
    tag = store.put("small", b"x" * 10)

    with pytest.raises(LimitExceeded) as refusal:
        store.get("large")
    writes: list[Callable[[], object]] = [
        lambda: store.put("new", b"x" * 11),
        lambda: store.put_if_absent("new", b"x" * 11),
        lambda: store.put_if_match("small", b"x" * 11, tag=tag),
    ]
    for write in writes:
        with pytest.raises(LimitExceeded):
            write()

    assert refusal.value.limit == 10
    assert refusal.value.actual == 11
    assert [info.path for info in store.list("")] == ["large", "small"]
    assert store.get_range("large", start=5, length=20) == b"x" * 6


def test_a_client_without_conditional_writes_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="LocalStore"):
        CloudStore(LocalStore())  # type: ignore[arg-type]


def test_the_location_names_bucket_and_prefix_and_no_secret() -> None:
    secret = "czNjcjN0"  # noqa: S105  a canary, in base 64 for Azure
    stores = [
        CloudStore(S3Store("lake", prefix="a/b", access_key_id="k", secret_access_key=secret)),
        CloudStore(S3Store("lake", access_key_id="k", secret_access_key=secret)),
        CloudStore(GCSStore("lake", prefix="p", skip_signature=True)),
        CloudStore(AzureStore("lake", account_name="me", account_key=secret)),
    ]

    assert [store.location for store in stores] == [
        "s3://lake/a/b",
        "s3://lake",
        "gs://lake/p",
        "abfss://lake@me.dfs.core.windows.net",
    ]
    assert [repr(store) for store in stores] == [
        f"CloudStore({store.location!r})" for store in stores
    ]
    assert all(secret not in repr(vars(store)) for store in stores)


class TestWhatAnErrorMeans:
    @pytest.mark.parametrize(
        ("status", "verdict"),
        [
            (400, Verdict.NO),
            (401, Verdict.NO),
            (403, Verdict.NO),
            (404, Verdict.NO),
            (405, Verdict.NO),
            (408, Verdict.LOST),
            (409, Verdict.REFUSED),
            (429, Verdict.LOST),
            (500, Verdict.LOST),
            (502, Verdict.LOST),
            (503, Verdict.LOST),
            (504, Verdict.LOST),
        ],
    )
    def test_the_status_decides_where_the_class_is_vague(
        self, status: int, verdict: Verdict
    ) -> None:
        failure = _attempt(lambda: _raise(status_error(status)))

        assert failure.verdict is verdict
        assert failure.reason == f"{status} SomeCode"

    def test_an_error_in_unknown_words_may_have_been_carried_out(self) -> None:
        failure = _attempt(lambda: _raise(GenericError("Status { status: 403 } kind: Connect,")))

        assert failure.verdict is Verdict.LOST
        assert failure.reason == "GenericError"

    def test_a_path_cannot_imitate_a_status(self) -> None:
        imitation = "inner: Status {    status: 403, <Code>NoSuchBucket</Code> kind: Connect,"

        failure = _attempt(lambda: _raise(GenericError(f'path: "{imitation}"')))

        assert failure.verdict is Verdict.LOST

    def test_nothing_of_the_answer_but_status_and_code_is_kept(self) -> None:
        for error in (status_error(400, "ExpiredToken"), PermissionDeniedError("s3cr3t")):
            failure = _attempt(lambda error=error: _raise(error))  # type: ignore[misc]

            assert "s3cr3t" not in repr(failure)

    def test_a_store_without_entity_tags_is_refused(self) -> None:
        with pytest.raises(Unavailable, match="entity tag"):
            _tag(None, "1")


class TestWithoutAServer:
    @pytest.fixture
    def clock(self) -> SimulatedClock:
        return SimulatedClock()

    @pytest.fixture
    def store(self, clock: SimulatedClock) -> CloudStore:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        options = {
            "endpoint": f"http://127.0.0.1:{port}",
            "allow_http": "true",
            "access_key_id": "key",
            "secret_access_key": "s3cr3t",
            "region": "eu-central-1",
            "patience_seconds": "0.1",
        }
        parsed = parse_s3_options(options)
        return open_cloud("lake", prefix="", options=parsed, clock=clock, ids=SeededIds())

    def test_a_write_that_was_never_sent_is_certainly_not_written(self, store: CloudStore) -> None:
        writes: list[Callable[[], object]] = [
            lambda: store.put_if_absent("slot", b"x"),
            lambda: store.put_if_match("slot", b"x", tag='"tag"'),
            lambda: store.put("slot", b"x"),
            lambda: store.delete("slot"),
        ]
        for write in writes:
            with pytest.raises(Unavailable, match="no connection") as failure:
                write()
            assert failure.value.hint
            assert failure.value.__cause__ is None
            assert failure.value.__context__ is None

    def test_reads_are_unavailable(self, store: CloudStore) -> None:
        reads: list[Callable[[], object]] = [
            lambda: store.get("object"),
            lambda: store.get_if_changed("object", tag='"tag"'),
            lambda: store.get_range("object", start=0, length=1),
            lambda: store.size("object"),
            lambda: list(store.list("")),
        ]
        for read in reads:
            with pytest.raises(Unavailable, match="s3://lake did not serve"):
                read()

    def test_patience_bounds_how_long_a_call_goes_on(
        self, store: CloudStore, clock: SimulatedClock
    ) -> None:
        with pytest.raises(Unavailable):
            store.put_if_absent("slot", b"x")

        assert 0.02 < clock.monotonic() <= 0.1

    def test_a_wrong_name_costs_no_patience(self, store: CloudStore, clock: SimulatedClock) -> None:
        with pytest.raises(InvalidArgument):
            store.put("../slot", b"x")

        assert clock.monotonic() == 0


class TestWithoutObstore:
    def test_importing_says_what_to_install(self) -> None:
        script = (
            "import sys\n"
            "sys.modules['obstore'] = None\n"
            "from neve.errors import Unavailable\n"
            "try:\n"
            "    import neve.storage.cloud_store\n"
            "except Unavailable as error:\n"
            "    print(error)\n"
        )

        assert "pip install 'neve[s3]'" in python(script)

    def test_neve_and_local_stores_do_not_load_it(self) -> None:
        script = (
            "import sys\n"
            "import neve, neve.storage.open_store\n"
            "neve.storage.open_store.open_store('memory://x')\n"
            "print('obstore' in sys.modules)\n"
        )

        assert python(script) == "False\n"


def python(script: str) -> str:
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return run.stdout


def _raise(error: Exception) -> NoReturn:
    raise error
