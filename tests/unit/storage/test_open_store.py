"""A location names one store, or says what is wrong with it without repeating a secret."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from neve.errors import InvalidArgument, NotFound, Unavailable
from neve.storage.cloud_options import (
    Listing,
    RequestPrices,
    S3Options,
    parse_s3_options,
)
from neve.storage.cloud_store import CloudStore
from neve.storage.file_cache import origin_of
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectInfo, RequestCount
from neve.storage.open_store import open_store, probe_conditional_writes, probe_listing
from neve.testing.faulty_store import Fault, FaultyStore, Operation, PlannedFault
from neve.testing.simulated_clock import SeededIds

CANARY = "s3cr3t-canary"

KEYS = {"access_key_id": CANARY, "secret_access_key": CANARY}


class TestLocations:
    @pytest.mark.parametrize(
        "location",
        [
            "",
            "   ",
            "nul\0byte",
            "line\nbreak",
            "s3://",
            "s3:///prefix",
            "s3://x",
            "s3://bad bucket/x",
            "s3://-bucket",
            "s3://bucket//x",
            "s3://bucket/../x",
            "s3://bucket/a/./b",
            "s3://bucket/back\\slash",
            "s3:bucket",
            "gcs://bucket",
            "gs://",
            "az://",
            "http://127.0.0.1/",
            "https://example.com/x",
            "ftp://host/x",
            "directory://x",
            "memory://",
            "memory:name",
            "memory://a/b",
            "file://",
            "file://host/x",
            "file:///nul%00byte",
            "file:///x?y",
            "file:///x#y",
            "s3://bucket/x?versionId=1",
        ],
    )
    def test_a_location_that_names_no_store_is_refused(self, location: str) -> None:
        with pytest.raises(InvalidArgument) as refusal:
            open_store(location)

        assert refusal.value.hint

    @pytest.mark.parametrize(
        "location",
        [
            f"s3://key:{CANARY}@bucket/x",
            f"s3://{CANARY}@bucket",
            f"memory://{CANARY}@x",
            f"file://{CANARY}@localhost/x",
            f"http://user:{CANARY}@host/x",
            f"abfss://container:{CANARY}@account.dfs.core.windows.net/x",
            f"wasbs://user:{CANARY}@account/x",
            f"abfss://{CANARY}@a@account/x",
            f"s3a://key:{CANARY}@bucket",
            f"abfss://c@account/x?sig={CANARY}",
            f"s3://bucket/x?X-Amz-Signature={CANARY}",
        ],
    )
    def test_a_secret_in_a_location_is_refused_and_not_repeated(self, location: str) -> None:
        with pytest.raises(InvalidArgument) as refusal:
            open_store(location)

        assert CANARY not in str(refusal.value)
        assert CANARY not in repr(refusal.value)

    @pytest.mark.parametrize("location", ["wasbs://c@a", "wasb://$root@account.blob.host"])
    def test_a_container_of_azure_is_not_taken_for_a_password(self, location: str) -> None:
        with pytest.raises(InvalidArgument) as refusal:
            open_store(location)

        assert "no store for" in refusal.value.message
        assert "password" not in str(refusal.value)

    @pytest.mark.parametrize(
        ("location", "options", "expected"),
        [
            ("s3a://bucket/lake", {}, "s3://bucket/lake"),
            ("gs://bucket/lake", {"skip_signature": "true"}, "gs://bucket/lake"),
            (
                "abfss://box@me.dfs.core.windows.net/lake",
                {"account_key": "a2V5"},
                "abfss://box@me.dfs.core.windows.net/lake",
            ),
            (
                "abfs://box@me/lake",
                {"account_key": "a2V5"},
                "abfss://box@me.dfs.core.windows.net/lake",
            ),
            (
                "az://box/lake",
                {"account_name": "me", "account_key": "a2V5"},
                "abfss://box@me.dfs.core.windows.net/lake",
            ),
            ("az://box", {"use_emulator": "true", "allow_http": "true"}, "az://box"),
        ],
    )
    def test_each_kind_of_bucket_has_its_scheme(
        self, location: str, options: Mapping[str, str], expected: str
    ) -> None:
        store = open_store(location, storage_options=options)

        assert store.location == expected
        assert "a2V5" not in repr(store)

    @pytest.mark.parametrize(
        ("location", "options"),
        [
            ("gs://bucket", {"access_key_id": CANARY, "secret_access_key": CANARY}),
            ("gs://bucket", {"service_account": CANARY}),
            ("gs://bucket", {"service_account_key": CANARY}),
            ("az://box", {"region": CANARY}),
            ("az://box", {"account_name": "me", "account_key": f"{CANARY}!"}),
            ("abfss://box@me/x", {"account_name": CANARY}),
        ],
    )
    def test_options_of_another_kind_are_refused_and_not_repeated(
        self, location: str, options: Mapping[str, str]
    ) -> None:
        with pytest.raises(InvalidArgument) as refusal:
            open_store(location, storage_options=options)

        assert CANARY not in str(refusal.value)
        assert CANARY not in repr(refusal.value.__cause__)

    def test_the_keys_of_a_profile_are_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / ".aws").mkdir()
        (tmp_path / ".aws" / "credentials").write_text(
            "[work]\naws_access_key_id = key\naws_secret_access_key = s%cret\n"
        )

        found = parse_s3_options({"profile": "work"})

        assert (found.access_key_id, found.secret_access_key) == ("key", "s%cret")
        assert "profile" not in found.client_config()
        for options in ({"profile": CANARY}, {"profile": "work", **KEYS}):
            with pytest.raises(InvalidArgument) as refusal:
                parse_s3_options(options)
            assert CANARY not in str(refusal.value)

    def test_a_directory_is_a_local_store_and_is_made(self, tmp_path: Path) -> None:
        store = open_store(str(tmp_path / "new lake"))

        assert isinstance(store, LocalStore)
        assert (tmp_path / "new lake").is_dir()

    @pytest.mark.parametrize("form", ["{}", "file://{}"])
    def test_without_create_a_missing_directory_stays_missing(
        self, tmp_path: Path, form: str
    ) -> None:
        missing = tmp_path / "some" / "lake"

        with pytest.raises(NotFound) as refusal:
            open_store(form.format(missing), create=False)

        assert refusal.value.path == str(missing)
        assert refusal.value.hint
        assert list(tmp_path.iterdir()) == []

    def test_without_create_a_directory_that_is_there_is_opened(self, tmp_path: Path) -> None:
        open_store(str(tmp_path)).put("object", b"x")

        assert open_store(str(tmp_path), create=False).get("object").payload == b"x"

    @pytest.mark.parametrize("form", ["file://{}", "file://localhost{}", "file:{}", "FILE://{}"])
    def test_a_file_url_is_the_directory_it_names(self, tmp_path: Path, form: str) -> None:
        open_store(str(tmp_path / "a lake?")).put("object", b"x")
        path = str(tmp_path / "a%20lake%3F")

        assert open_store(form.format(path)).get("object").payload == b"x"

    def test_the_location_of_a_store_opens_it_again(self, tmp_path: Path) -> None:
        stores = [open_store(str(tmp_path / "ü %20")), open_store("memory://named%20by test_open")]

        for store in stores:
            store.put("object", b"x")
            assert open_store(store.location).get("object").payload == b"x"

    def test_one_memory_name_is_one_store(self) -> None:
        store = open_store("memory://one name of test_open_store")

        assert isinstance(store, MemoryStore)
        assert open_store("memory://one name of test_open_store") is store
        assert open_store("memory://another of test_open_store") is not store

    @pytest.mark.parametrize(
        ("location", "expected"),
        [
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/", "s3://bucket"),
            ("S3://bucket/a/b", "s3://bucket/a/b"),
            ("s3://bucket/a/b/", "s3://bucket/a/b"),
            ("s3://my.bucket-1/ü/100%", "s3://my.bucket-1/ü/100%"),
        ],
    )
    def test_an_s3_location_is_a_bucket_and_a_prefix(self, location: str, expected: str) -> None:
        store = open_store(location, storage_options={"region": "eu-central-1"})

        assert isinstance(origin_of(store), CloudStore)
        assert store.location == expected

    @pytest.mark.parametrize("location", ["memory://x", "/tmp/x", "file:///tmp/x"])  # noqa: S108
    def test_options_that_nothing_reads_are_refused(self, location: str) -> None:
        with pytest.raises(InvalidArgument, match="region"):
            open_store(location, storage_options={"region": CANARY})


class TestS3Options:
    @pytest.mark.parametrize(
        "options",
        [
            {"bucket": CANARY},
            {"aws_secret_access_key": CANARY},
            {"conditional_put": CANARY},
            {"endpoint": CANARY},
            {"endpoint": ""},
            {"endpoint": f"ftp://{CANARY}"},
            {"endpoint": f"https://user:{CANARY}@host"},
            {"endpoint": f"https://{CANARY}:99999"},
            {"endpoint": f"https://host/?{CANARY}"},
            {"endpoint": f"http://{CANARY}"},
            {"endpoint": f"http://{CANARY}", "allow_http": "false"},
            {"allow_http": CANARY},
            {"skip_signature": CANARY},
            {"virtual_hosted_style_request": ""},
            {"region": f"{CANARY}\n"},
            {"session_token": f"{CANARY}ü"},
            {"access_key_id": CANARY},
            {"secret_access_key": CANARY},
            {"access_key_id": "key", "secret_access_key": f"{CANARY}\r\nX-Evil: 1"},
            {"timeout_seconds": CANARY},
            {"timeout_seconds": "0"},
            {"timeout_seconds": "-1"},
            {"timeout_seconds": "nan"},
            {"timeout_seconds": "inf"},
            {"timeout_seconds": "1e9"},
            {"patience_seconds": "0"},
            {"listing": CANARY},
        ],
        ids=repr,
    )
    def test_an_unfit_option_is_refused_and_its_value_not_repeated(
        self, options: Mapping[str, str]
    ) -> None:
        with pytest.raises(InvalidArgument) as refusal:
            open_store("s3://bucket/x", storage_options=options)

        assert CANARY not in str(refusal.value)
        assert refusal.value.hint

    def test_an_unknown_option_is_named_with_those_there_are(self) -> None:
        with pytest.raises(InvalidArgument, match="'regoin'") as refusal:
            parse_s3_options({"regoin": "eu-central-1"})

        assert "region" in str(refusal.value.hint)

    def test_every_option_is_read(self) -> None:
        options = parse_s3_options(
            {
                "endpoint": "http://127.0.0.1:9000",
                "region": "eu-central-1",
                "access_key_id": "key",
                "secret_access_key": "secret",
                "session_token": "token",
                "skip_signature": "TRUE",
                "virtual_hosted_style_request": "true",
                "allow_http": "true",
                "timeout_seconds": "1.5",
                "patience_seconds": "2",
                "listing": "unordered",
            }
        )

        assert options == S3Options(
            endpoint="http://127.0.0.1:9000",
            region="eu-central-1",
            access_key_id="key",
            secret_access_key="secret",  # noqa: S106  not a real one
            session_token="token",  # noqa: S106  not a real one
            skip_signature=True,
            virtual_hosted_style_request=True,
            allow_http=True,
            timeout_seconds=1.5,
            patience_seconds=2.0,
            listing=Listing.UNORDERED,
        )

    def test_no_option_is_the_default_of_each(self) -> None:
        assert parse_s3_options({}) == S3Options()

    def test_the_repr_holds_no_text_that_was_given(self) -> None:
        options = parse_s3_options(
            {
                "endpoint": f"https://{CANARY}.example",
                "region": CANARY,
                "access_key_id": CANARY,
                "secret_access_key": CANARY,
                "session_token": CANARY,
            }
        )

        assert CANARY not in repr(options)


class IgnoresCreate(MemoryStore):
    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        return self.put(path, payload)


class IgnoresTags(MemoryStore):
    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        del tag
        return self.put(path, payload)


class IgnoresTagsOfMissingObjects(MemoryStore):
    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        if any(info.path == path for info in self.list(path)):
            return super().put_if_match(path, payload, tag=tag)
        return self.put(path, payload)


class RefusesRightTags(MemoryStore):
    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> None:
        del path, payload, tag


class RefusesToCreate(MemoryStore):
    def put_if_absent(self, path: str, payload: bytes) -> None:
        del path, payload


class SaysNoButWrites(MemoryStore):
    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        if super().put_if_match(path, payload, tag=tag) is not None:
            return self.get(path).tag
        self.put(path, payload)
        return None


class ListsByDirectory(MemoryStore):
    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        found = super().list(prefix, after=after)
        return iter(sorted(found, key=lambda info: info.path.split("/")))


@pytest.mark.parametrize(
    ("store", "broken"),
    [
        (IgnoresCreate(), "If-None-Match"),
        (IgnoresTags(), "If-Match"),
        (IgnoresTagsOfMissingObjects(), "missing object"),
        (RefusesRightTags(), "its tag was right"),
        (RefusesToCreate(), "refused to create"),
        (SaysNoButWrites(), "other bytes"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MemoryStore) else "",
)
def test_a_broken_promise_is_named_with_what_to_do(store: MemoryStore, broken: str) -> None:
    with pytest.raises(Unavailable) as refusal:
        probe_conditional_writes(store, SeededIds())

    assert broken in refusal.value.message
    assert "lost" in refusal.value.message
    assert refusal.value.hint
    assert list(store.list("")) == []


def test_a_store_that_keeps_conditions_is_accepted_and_left_empty() -> None:
    store = MemoryStore()

    probe_conditional_writes(store, SeededIds())

    assert list(store.list("")) == []


def test_two_probes_at_once_do_not_disturb_each_other() -> None:
    ids = SeededIds()
    store = MemoryStore()
    nested = FaultyStore(store, before_call=lambda _: probe_conditional_writes(store, ids))

    probe_conditional_writes(nested, ids)

    assert list(store.list("")) == []


def test_a_probe_that_cannot_clean_up_still_says_what_it_found() -> None:
    plan = [PlannedFault(fault=Fault.BEFORE, operation=Operation.DELETE, times=9)]

    with pytest.raises(Unavailable, match="If-None-Match"):
        probe_conditional_writes(FaultyStore(IgnoresCreate(), plan), SeededIds())


def test_a_store_that_sorts_is_accepted_and_left_empty() -> None:
    store = MemoryStore()

    probe_listing(store, SeededIds())

    assert list(store.list("")) == []


def test_a_store_that_lists_by_directory_is_refused() -> None:
    store = ListsByDirectory()

    with pytest.raises(Unavailable, match="ascending order") as refusal:
        probe_listing(store, SeededIds())

    assert "listing=unordered" in str(refusal.value)
    assert list(store.list("")) == []


class TestPrices:
    def test_prices_left_out_are_those_of_s3(self) -> None:
        prices = parse_s3_options({"prices": '{"put": 7, "gib_received": 0.5}'}).prices
        assert (prices.put, prices.gib_received, prices.get) == (7, 0.5, 0.4)

    def test_a_request_costs_its_price_and_that_of_its_bytes(self) -> None:
        prices = RequestPrices(get=2.0, gib_received=3.0)
        count = RequestCount(requests=500_000, bytes_received=1 << 30)
        assert prices.priced("get_range", count).cost == 4.0

    @pytest.mark.parametrize(
        "text",
        [
            "no-such-file.json",
            "/",
            "{",
            "[]",
            '{"puts": 1}',
            '{"put": -1}',
            '{"put": "1"}',
            '{"put": NaN}',
            '{"put": Infinity}',
            '{"put": true}',
            '{"put": ' + "[" * 100_000,
        ],
    )
    def test_what_is_not_a_table_of_prices_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidArgument, match="prices") as refusal:
            parse_s3_options({"prices": text})
        assert "gib_sent" in str(refusal.value.hint)
