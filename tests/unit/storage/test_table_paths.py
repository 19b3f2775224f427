"""Which paths and names are refused, and how the files of a warehouse are spelled."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import InvalidArgument
from neve.storage.table_paths import (
    CATALOG_MANIFEST,
    TablePaths,
    check_name,
    check_path,
    check_prefix,
    is_object_name,
    join_path,
    log_epoch,
    log_number,
    split_path,
)

TRAVERSALS = [
    f"{before}{step}{after}"
    for before, step, after in itertools.product(
        ("", "a/", "a/b/"), ("..", ".", "../..", "./.", "../a/.."), ("", "/", "/etc/passwd")
    )
]
CONTROLS = [f"a{chr(code)}b" for code in (*range(32), *range(127, 160), 0x2028, 0x2029)]
LOCATIONS = [
    "/",
    "//",
    "/etc/passwd",
    "//host/share",
    "file:///etc/passwd",
    "http://169.254.169.254/latest/meta-data",
    "s3://other-bucket/key",
    "s3://user@host/key",
    "",
    "a//b",
    "a/",
    "/a",
    "a///",
]
BACKSLASHES = ["\\", "..\\..\\a", "a\\b", "C:\\windows", "\\\\host\\share"]
TOO_LONG = ["s" * 256, "ü" * 128, "😀" * 64, "a/" * 512 + "a", "/".join(["x" * 200] * 6)]
RESERVED = [".tmp-1", "a/.tmp-", "a/.tmp-x/b", ".lock", "a/.lock", ".lock/a"]
SURROGATES = ["\ud800", "a/\udfff", "\udcff\udcfe"]
HOSTILE_PATHS = [
    *TRAVERSALS,
    *CONTROLS,
    *LOCATIONS,
    *BACKSLASHES,
    *TOO_LONG,
    *RESERVED,
    *SURROGATES,
]

# Refused elsewhere or on other systems, and plain names here.
HARMLESS_PATHS = [
    "a",
    "a/b/c.parquet",
    "...",
    "a...b",
    "..a",
    ".hidden",
    "a/..b",
    "%2e%2e/%2F",
    "․․/a",
    "CON",
    "a:b",
    "~root",
    "$HOME",
    "`id`",
    "a b",
    " a",
    "a ",
    "a.",
    "*",
    "'; drop table x; --",
    "day=2026-11-15/x",
    "日本語",
    "😀" * 63,
    "s" * 255,
    "LOCK",
    ".locks",
    ".tmp",
    "tmp-1",
    "/".join(["x" * 203] * 5),
]


def test_there_are_enough_hostile_paths() -> None:
    assert len(set(HOSTILE_PATHS)) >= 100


@pytest.mark.parametrize("path", HOSTILE_PATHS, ids=ascii)
def test_a_hostile_path_is_refused_with_a_hint_on_one_line(path: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        check_path(path)

    assert refusal.value.hint
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 1_000


@pytest.mark.parametrize("path", HARMLESS_PATHS, ids=ascii)
def test_a_path_that_only_looks_odd_is_allowed(path: str) -> None:
    check_path(path)  # raises InvalidArgument for a path that is refused


@given(st.text(max_size=40))
def test_an_allowed_path_stays_below_its_root(path: str) -> None:
    try:
        check_path(path)
    except InvalidArgument:
        return

    segments = path.split("/")
    assert not {"", ".", ".."} & set(segments)
    assert "\0" not in path
    assert len(path.encode()) <= 1_024


@pytest.mark.parametrize("prefix", ["/", "/a", "../", "a/../b", "a//", "nul\0", "a\\", "x" * 1_025])
def test_a_prefix_that_no_path_has_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidArgument):
        check_prefix(prefix)


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", ".", "a/.", "a/..", ".t"])
def test_a_prefix_may_end_inside_a_name(prefix: str) -> None:
    check_prefix(prefix)  # raises InvalidArgument for a prefix that is refused


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a/b",
        "/",
        "../a",
        " a",
        "a ",
        "\u00a0a",
        "a\u3000",
        ".",
        "..",
        ".a",
        "a.",
        "n" * 256,
        "ü" * 128,
        "n" * 300,
        "\ud800",
        *CONTROLS,
    ],
    ids=ascii,
)
def test_a_name_that_cannot_be_kept_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        check_name(name, what="table name")

    assert "table name" in refusal.value.message
    assert refusal.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "Bestellungen für Köln",
        "注文",
        "a.b",
        "*",
        "'",
        '"',
        "%",
        ";",
        "a\\b",
        "x' or '1'='1",
        "${jndi:x}",
        "{{x}}",
        "<script>",
        "CON",
        "n" * 255,
    ],
    ids=ascii,
)
def test_names_are_data(name: str) -> None:
    check_name(name)  # raises InvalidArgument for a name that is refused


def test_a_long_hostile_path_is_shown_cut() -> None:
    with pytest.raises(InvalidArgument) as refusal:
        check_path("x" * 1_000_000)

    assert len(str(refusal.value)) < 1_000


@pytest.mark.parametrize(
    ("path", "parts"),
    [("a/b/c", ("a/b", "c")), ("c", ("", "c")), ("a/c", ("a", "c"))],
)
def test_splitting_and_joining_are_opposites(path: str, parts: tuple[str, str]) -> None:
    assert split_path(path) == parts
    assert join_path(*parts) == path


@pytest.mark.parametrize("name", [".tmp-1", ".lock", "LOCK", "a\nb", "\udcff"])
def test_files_of_the_store_itself_are_no_objects(name: str) -> None:
    assert not is_object_name(name)


def test_every_file_of_a_table_is_spelled_as_documented() -> None:
    table = TablePaths("0f3a")

    spelled = [
        CATALOG_MANIFEST,
        table.manifest,
        table.root,
        table.wal,
        table.lock,
        table.wal_epoch(3),
        table.wal_file(3, 7),
        table.wal_file(3, 1_234_567),
        table.data,
        table.data_file("f1"),
        table.data_file("f1", partition_path="ts_day=2026-11-15/id_bucket=4"),
        table.deletes,
        table.delete_file("d1"),
        table.index,
        table.index_of("data/ts_day=2026-11-15/f1.parquet"),
        table.metadata,
        table.metadata_file("v3.metadata.json"),
    ]

    assert spelled == [
        "manifest/catalog",
        "manifest/version/0f3a",
        "tables/0f3a",
        "tables/0f3a/wal",
        "tables/0f3a/wal/LOCK",
        "tables/0f3a/wal/3",
        "tables/0f3a/wal/3/000007.wal",
        "tables/0f3a/wal/3/1234567.wal",
        "tables/0f3a/data",
        "tables/0f3a/data/f1.parquet",
        "tables/0f3a/data/ts_day=2026-11-15/id_bucket=4/f1.parquet",
        "tables/0f3a/deletes",
        "tables/0f3a/deletes/d1.puffin",
        "tables/0f3a/index",
        "tables/0f3a/index/f1.index",
        "tables/0f3a/metadata",
        "tables/0f3a/metadata/v3.metadata.json",
    ]
    for path in spelled:
        check_path(path)


@pytest.mark.parametrize("table_id", HOSTILE_PATHS, ids=ascii)
def test_a_hostile_table_id_is_refused(table_id: str) -> None:
    with pytest.raises(InvalidArgument):
        TablePaths(table_id)


def test_a_table_id_is_one_segment() -> None:
    with pytest.raises(InvalidArgument):
        TablePaths("a/b")


@pytest.mark.parametrize("part", ["../../x", "a/../../../b", "", "nul\0"])
def test_a_hostile_part_of_a_file_name_is_refused(part: str) -> None:
    table = TablePaths("1")

    with pytest.raises(InvalidArgument):
        table.data_file("f", partition_path=f"{part}/x")
    if part:
        with pytest.raises(InvalidArgument):
            table.metadata_file(part)
        with pytest.raises(InvalidArgument):
            table.delete_file(part)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_log_path_tells_its_number_and_epoch(epoch: int, number: int) -> None:
    path = TablePaths("1").wal_file(epoch, number)

    assert log_number(path) == number
    assert log_epoch(path) == epoch


def test_negative_numbers_have_no_path() -> None:
    with pytest.raises(InvalidArgument):
        TablePaths("1").wal_file(0, -1)
    with pytest.raises(InvalidArgument):
        TablePaths("1").wal_file(-1, 0)


@pytest.mark.parametrize(
    "name",
    [
        "1.wal",
        "00001.wal",
        "0000001.wal",
        "000001.wal.tmp",
        "000001",
        "000001.log",
        "x00001.wal",
        "00000١.wal",
        "+00001.wal",
        "-00001.wal",
        "000_01.wal",
        " 000001.wal",
        "000001.wal\n",
        "1" * 21 + ".wal",
        "LOCK",
        "",
    ],
    ids=ascii,
)
def test_a_foreign_file_has_no_log_number(name: str) -> None:
    assert log_number(f"tables/1/wal/1/{name}") is None
    assert log_epoch(f"tables/1/wal/1/{name}") is None


@pytest.mark.parametrize("epoch", ["01", "x", "", "-1", "1" * 21])
def test_a_log_outside_of_an_epoch_has_none(epoch: str) -> None:
    assert log_epoch(f"wal/{epoch}/000001.wal") is None
