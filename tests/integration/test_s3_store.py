"""CloudStore on S3 servers: the contract, what errors say, and what each option does."""

import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Thread
from typing import Any

import boto3
import pytest
from obstore.store import S3Store
from werkzeug.serving import make_server

from neve.errors import (
    InvalidArgument,
    LimitExceeded,
    NeveError,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from neve.storage.clock import SystemIds
from neve.storage.cloud_store import CloudStore
from neve.storage.object_store import ObjectStore
from neve.storage.open_store import open_store, probe_conditional_writes, probe_listing
from neve.testing.faulty_store import Fault, Operation, PlannedFault
from neve.testing.s3_servers import REGION, MotoServer, S3Endpoint, S3Request, locked_moto
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.store_contract import HOSTILE_PATHS, ObjectStoreContract
from tests.gates import TORTURE

pytestmark = pytest.mark.s3

CANARY = "s3cr3t-canary"


def opened(at: S3Endpoint, prefix: str, **options: str) -> ObjectStore:
    return open_store(at.location(prefix), storage_options=at.storage_options(**options))


def calls(store: ObjectStore) -> list[Callable[[], object]]:
    """Every call of a store once, on an object that is not there."""
    return [
        lambda: store.get("object"),
        lambda: store.get_if_changed("object", tag='"tag"'),
        lambda: store.get_range("object", start=0, length=1),
        lambda: store.get_range("object", start=0, length=0),
        lambda: store.size("object"),
        lambda: store.put("object", b"x"),
        lambda: store.put_if_absent("object", b"x"),
        lambda: store.put_if_match("object", b"x", tag='"tag"'),
        lambda: list(store.list("")),
        lambda: store.delete("object"),
    ]


def amazon(at: S3Endpoint) -> Any:  # noqa: ANN401  boto3 has no types
    return boto3.client(
        "s3",
        endpoint_url=at.endpoint,
        region_name=REGION,
        aws_access_key_id=at.access_key_id,
        aws_secret_access_key=at.secret_access_key,
    )


class TestOnMoto(ObjectStoreContract):
    @pytest.fixture
    def store(self, moto: MotoServer, prefix: str) -> ObjectStore:
        return opened(moto.at, prefix)


class TestOnSeaweedFS(ObjectStoreContract):
    # A contended create takes it a fifth of a second.
    race_rounds = 20 if TORTURE else 2

    @pytest.fixture
    def store(self, seaweed: S3Endpoint, prefix: str) -> ObjectStore:
        return opened(seaweed, prefix, listing="unordered")


class TestProbes:
    def test_moto_and_seaweedfs_keep_conditions(
        self, moto: MotoServer, seaweed: S3Endpoint, prefix: str
    ) -> None:
        for at in (moto.at, seaweed):
            store = opened(at, prefix)

            probe_conditional_writes(store, SystemIds())

            assert list(store.list("")) == []

    def test_a_server_that_ignores_conditions_is_refused(self, prefix: str) -> None:
        with locked_moto(ignore_conditions=True) as server:
            store = opened(server.at, prefix)

            with pytest.raises(Unavailable, match="If-None-Match") as refusal:
                probe_conditional_writes(store, SystemIds())

            assert "one commit would be lost" in refusal.value.message
            assert refusal.value.hint
            assert list(store.list("")) == []

    def test_moto_lists_in_order(self, moto: MotoServer, prefix: str) -> None:
        probe_listing(opened(moto.at, prefix), SystemIds())

    def test_seaweedfs_does_not_and_says_so_by_itself(
        self, seaweed: S3Endpoint, prefix: str
    ) -> None:
        store = opened(seaweed, prefix)
        for path in ("a-b", "a/b"):
            store.put(path, b"x")

        with pytest.raises(Unavailable, match="out of order"):
            list(store.list(""))
        with pytest.raises(Unavailable, match="listing=unordered"):
            probe_listing(store, SystemIds())
        probe_listing(opened(seaweed, prefix, listing="unordered"), SystemIds())


class TestNames:
    @pytest.mark.parametrize("path", HOSTILE_PATHS, ids=ascii)
    def test_a_hostile_name_reaches_no_socket(
        self, moto: MotoServer, prefix: str, path: str
    ) -> None:
        store = opened(moto.at, prefix)

        for call in (
            lambda: store.get(path),
            lambda: store.put_if_absent(path, b"x"),
            lambda: store.delete(path),
            lambda: store.list(f"{path}\0"),
        ):
            with pytest.raises(InvalidArgument):
                call()

        assert moto.application.requests == ()

    def test_a_foreign_name_in_the_bucket_is_reported(self, moto: MotoServer, prefix: str) -> None:
        store = opened(moto.at, prefix)
        store.put("object", b"x")
        amazon(moto.at).put_object(Bucket=moto.at.bucket, Key=f"{prefix}/a//b", Body=b"x")

        with pytest.raises(Unavailable, match=r"empty, \. or \.\. segments"):
            list(store.list(""))

        assert store.get("object").payload == b"x"

    def test_folder_markers_do_not_disturb_a_listing(self, moto: MotoServer, prefix: str) -> None:
        store = opened(moto.at, prefix)
        for path in ("data-old", "data.x", "data/1"):
            store.put(path, b"x")
        for marker in ("", "data/"):
            amazon(moto.at).put_object(Bucket=moto.at.bucket, Key=f"{prefix}/{marker}", Body=b"")

        assert [info.path for info in store.list("")] == ["data-old", "data.x", "data/1"]


class TestListings:
    def test_a_listing_goes_on_behind_a_failed_page(self, moto: MotoServer, prefix: str) -> None:
        store = opened(moto.at, prefix)
        paths = [f"{number:04d}" for number in range(1_005)]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda path: store.put(path, b"x"), paths))
        faults = [
            PlannedFault(fault=Fault.BEFORE, call=1, operation=Operation.LIST),
            PlannedFault(fault=Fault.LOST, call=3, operation=Operation.LIST),
            PlannedFault(fault=Fault.CONFLICT, call=4, operation=Operation.LIST),
        ]
        moto.application.follow(faults)

        found = [info.path for info in store.list("")]

        assert found == paths
        assert [call.fault for call in moto.application.calls].count(None) >= 2

    def test_a_listing_asks_for_no_more_than_is_taken(self, moto: MotoServer, prefix: str) -> None:
        store = opened(moto.at, prefix)
        for path in ("a/1", "a/2", "b/1", "c/1"):
            store.put(path, b"x")
        moto.application.follow([])

        listing = store.list("a/")

        assert moto.application.requests == ()
        assert next(listing).path == "a/1"
        assert len(moto.application.requests) == 1


class TestErrors:
    def test_a_missing_bucket_is_unavailable_to_every_call(self, moto: MotoServer) -> None:
        store = open_store("s3://no-such-bucket/x", storage_options=moto.at.storage_options())

        for call in calls(store):
            with pytest.raises(Unavailable) as failure:
                call()
            assert "Create the bucket" in str(failure.value.hint)
            assert "404 NoSuchBucket" in failure.value.message

    def test_wrong_keys_are_unavailable_to_every_call(
        self, seaweed: S3Endpoint, prefix: str
    ) -> None:
        options = {"access_key_id": seaweed.access_key_id, "secret_access_key": CANARY}
        store = opened(seaweed, prefix, **options)

        for call in calls(store):
            with pytest.raises(Unavailable) as failure:
                call()
            assert "403" in failure.value.message
            assert "Check the credentials" in str(failure.value.hint)
            assert CANARY not in everything_said(failure.value)

    @pytest.mark.parametrize(
        ("status", "hint"),
        [
            ("400 Bad Request", "Check the endpoint"),
            ("401 Unauthorized", "Check the credentials"),
            ("403 Forbidden", "Check the credentials"),
            ("301 Moved Permanently", "Set the region"),
            ("405 Method Not Allowed", "Check the endpoint"),
        ],
    )
    def test_a_lasting_no_ends_every_call_at_once_without_repeating_the_answer(
        self, status: str, hint: str
    ) -> None:
        body = f"<Error><Code>InvalidToken</Code><Token-0>{CANARY}</Token-0></Error>".encode()
        with server_that_answers(status, body) as endpoint:
            clock = SimulatedClock()
            store = open_store(
                "s3://bucket/x", storage_options=keys_for(endpoint), clock=clock, ids=SeededIds()
            )

            for call in calls(store):
                with pytest.raises(Unavailable) as failure:
                    call()
                assert hint in str(failure.value.hint)
                assert CANARY not in everything_said(failure.value)
            assert clock.monotonic() == 0

    def test_an_answer_without_an_entity_tag_is_never_taken_for_success(self) -> None:
        with server_that_answers("200 OK", b"") as endpoint:
            store = open_store(
                "s3://bucket/x",
                storage_options=keys_for(endpoint),
                clock=SimulatedClock(),
                ids=SeededIds(),
            )

            for call in (
                lambda: store.get("object"),
                lambda: store.get_if_changed("object", tag='"tag"'),
                lambda: store.put("object", b"x"),
                lambda: store.put_if_absent("object", b"x"),
                lambda: store.put_if_match("object", b"x", tag='"tag"'),
            ):
                with pytest.raises((Unavailable, OutcomeUnknown)):
                    call()


class TestLargeObjects:
    def test_an_object_in_parts_is_whole(self, moto: MotoServer, prefix: str) -> None:
        five_megabytes = 5 << 20
        bucket = S3Store(
            moto.at.bucket,
            prefix=prefix,
            endpoint=moto.at.endpoint,
            region=REGION,
            access_key_id=moto.at.access_key_id,
            secret_access_key=moto.at.secret_access_key,
            client_options={"allow_http": True},
        )
        store = CloudStore(bucket, part_bytes=five_megabytes, object_bytes_max=11 << 20)
        payload = bytes(range(256)) * (40 << 10) + b"end"

        tag = store.put("in parts", payload)

        queries = [request.query for request in moto.application.requests]
        assert len([query for query in queries if "partNumber" in query]) == 3
        found = store.get("in parts")
        assert found.payload == payload
        assert found.tag == tag
        with pytest.raises(LimitExceeded):
            store.put("too large", bytes(12 << 20))


class TestVersionedBuckets:
    def test_tags_carry_the_version_and_still_match(self, moto: MotoServer, prefix: str) -> None:
        bucket = f"versioned-{prefix.removeprefix('tests/')}"
        client = amazon(moto.at)
        client.create_bucket(
            Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        store = open_store(f"s3://{bucket}/x", storage_options=moto.at.storage_options())

        first = store.put_if_absent("head", b"one")
        assert first is not None
        second = store.put_if_match("head", b"two", tag=first)
        assert second is not None

        assert store.get("head").tag == second
        assert store.get_if_changed("head", tag=second) is None
        assert store.put_if_match("head", b"three", tag=first) is None
        assert store.put("head", b"two") != second


class TestOptions:
    def test_keys_and_region_sign_the_request(self, moto: MotoServer, prefix: str) -> None:
        store = opened(moto.at, prefix, region="us-west-2", session_token="a-token")  # noqa: S106

        store.put("object", b"x")

        request = last_request(moto)
        assert f"Credential={moto.at.access_key_id}/" in request.headers["authorization"]
        assert "/us-west-2/s3/" in request.headers["authorization"]
        assert request.headers["x-amz-security-token"] == "a-token"
        assert moto.at.secret_access_key not in repr(request)

    def test_a_signature_can_be_skipped(self, moto: MotoServer, prefix: str) -> None:
        opened(moto.at, prefix, skip_signature="true").put("object", b"x")

        assert "authorization" not in last_request(moto).headers

    def test_the_host_can_name_the_bucket(self, moto: MotoServer, prefix: str) -> None:
        store = opened(moto.at, prefix, virtual_hosted_style_request="true")

        with pytest.raises(NeveError):
            store.get("object")

        assert last_request(moto).path == f"/{prefix}/object"

    def test_a_request_takes_no_longer_than_its_time_out(
        self, moto: MotoServer, prefix: str
    ) -> None:
        moto.application.follow([PlannedFault(fault=Fault.TIMEOUT, call=1)])
        store = opened(moto.at, prefix, timeout_seconds="0.2")

        tag = store.put_if_absent("slot", b"x")

        assert tag == store.get("slot").tag

    @pytest.mark.parametrize(
        ("fault", "reason"), [(Fault.TIMEOUT, "timed out"), (Fault.LOST, "connection lost")]
    )
    def test_an_unknown_outcome_says_why(
        self, moto: MotoServer, prefix: str, fault: Fault, reason: str
    ) -> None:
        moto.application.follow([PlannedFault(fault=fault, call=1)])
        store = opened(moto.at, prefix, timeout_seconds="0.2", patience_seconds="0.001")

        with pytest.raises(OutcomeUnknown, match=reason):
            store.put("object", b"x")

    def test_patience_bounds_a_call(self, moto: MotoServer, prefix: str) -> None:
        for patience, tries in (("0.001", 1), ("0.2", 3)):
            plan = PlannedFault(fault=Fault.CONFLICT, operation=Operation.DELETE, times=1_000)
            moto.application.follow([plan])
            store = open_store(
                moto.at.location(prefix),
                storage_options=moto.at.storage_options(patience_seconds=patience),
                clock=SimulatedClock(),
                ids=SeededIds(),
            )

            with pytest.raises(Unavailable):
                store.delete("object")

            assert len(moto.application.calls) == tries

    def test_a_prefix_is_a_store_of_its_own(self, moto: MotoServer, prefix: str) -> None:
        inner = opened(moto.at, f"{prefix}/inner")
        inner.put("object", b"x")
        opened(moto.at, f"{prefix}/inner-sibling").put("object", b"y")

        assert [info.path for info in inner.list("")] == ["object"]
        assert opened(moto.at, prefix).get("inner/object").payload == b"x"
        with pytest.raises(NotFound):
            opened(moto.at, f"{prefix}/inn").get("er/object")


def last_request(server: MotoServer) -> S3Request:
    return server.application.requests[-1]


def everything_said(error: NeveError) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))


def keys_for(endpoint: str) -> dict[str, str]:
    at = S3Endpoint(
        endpoint=endpoint, bucket="bucket", access_key_id="key", secret_access_key=CANARY
    )
    return at.storage_options(session_token=CANARY)


@contextmanager
def server_that_answers(status: str, body: bytes) -> Iterator[str]:
    """Run a server that gives every request the same answer."""

    def answer(environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(status, [("Content-Length", str(len(body)))])
        return [body]

    server = make_server("127.0.0.1", 0, answer, threaded=True)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
