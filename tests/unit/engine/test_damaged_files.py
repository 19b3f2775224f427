"""Files that are missing or damaged: typed errors that name them, never wrong rows."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.errors import Corruption
from tests.unit.engine.tables import COLUMNS, a_catalog, a_table, rows

OPTIONS = neve.TableOptions(background=False)


@pytest.fixture(params=[0, 2], ids=["columnar", "dual"])
def lake(request: pytest.FixtureRequest) -> Iterator[Lake]:
    """Yield a catalog whose table has a data file, its index, and a vector."""
    with a_catalog() as catalog:
        table = a_table(catalog, options=replace(OPTIONS, dual_levels=request.param))
        table.upsert(rows(0, 500, v=1))
        table.flush()
        table.upsert(rows(0, 50, v=2))
        table.delete_many(list(range(450, 500)))
        table.flush()
        table.close()
        yield catalog


def paths_of(table: neve.Table, folder: str) -> list[str]:
    root = table._open.stored.paths.root
    return [info.path for info in table._open.stored.objects.list(f"{root}/{folder}/")]


def damage(table: neve.Table, folder: str, change: Callable[[bytes], bytes]) -> None:
    objects = table._open.stored.objects
    for path in paths_of(table, folder):
        objects.put(path, change(objects.get(path).payload))


def flipped(place: float) -> Callable[[bytes], bytes]:
    def change(payload: bytes) -> bytes:
        at = min(int(len(payload) * place), len(payload) - 1)
        return payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]

    return change


def expected(number: int) -> dict[str, object] | None:
    if number >= 450:
        return None
    return {"id": number, "v": 2 if number < 50 else 1, "text": "t"}


def reads(table: neve.Table) -> list[Callable[[], object]]:
    return [
        lambda: [table.get(number) for number in (10, 100, 460)],
        lambda: table.get_many([10, 100, 460]).to_pylist(),
        lambda: table.scan(reverse=True).to_arrow().num_rows,
        lambda: table.scan("v = 1").count(),
    ]


RIGHT: list[object] = [
    [expected(10), expected(100), None],
    [expected(10), expected(100)],
    450,
    400,
]


@pytest.mark.parametrize("place", [0.0, 0.25, 0.5, 0.75, 0.99], ids=str)
@pytest.mark.parametrize("folder", ["data", "deletes", "index"])
def test_a_flipped_bit_gives_the_right_rows_or_corruption(
    lake: Lake, folder: str, place: float
) -> None:
    with lake.table("a.b", options=OPTIONS) as table:
        damage(table, folder, flipped(place))
        for read, right in zip(reads(table), RIGHT, strict=True):
            try:
                found = read()
            except Corruption as error:
                assert folder != "index", "an index is made again"
                assert error.path is not None  # noqa: PT017 - either outcome is right
                assert f"/{folder}/" in error.path  # noqa: PT017
            else:
                assert found == right


@pytest.mark.parametrize(
    "change",
    [lambda _: b"", lambda p: p[:-1], lambda p: p + b"x", lambda p: bytes(len(p))],
    ids=["empty", "cut", "longer", "zeros"],
)
@pytest.mark.parametrize("folder", ["data", "deletes"])
def test_a_file_that_is_not_what_was_written_is_named(
    lake: Lake, folder: str, change: Callable[[bytes], bytes]
) -> None:
    with lake.table("a.b", options=OPTIONS) as table:
        damage(table, folder, change)
        with pytest.raises(Corruption):
            table.verify()


def test_verify_reads_what_is_stored_and_not_what_is_remembered(lake: Lake) -> None:
    with lake.table("a.b", options=OPTIONS) as table:
        table.scan().to_arrow()
        damage(table, "deletes", flipped(0.05))
        with pytest.raises(Corruption, match="puffin"):
            table.verify()


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "flipped"])
def test_verify_reads_the_vectors_of_old_versions_too(lake: Lake, is_gone: bool) -> None:
    with lake.table("a.b", options=OPTIONS) as table:
        table.compact(full=True)
        assert table.verify().vector_count == 0
        if is_gone:
            for path in paths_of(table, "deletes"):
                table._open.stored.objects.delete(path)
        else:
            damage(table, "deletes", flipped(0.05))

        with pytest.raises(Corruption, match="puffin"):
            table.verify()


@pytest.mark.parametrize("folder", ["data", "deletes"])
def test_a_file_that_is_gone_is_named_and_the_table_stays_open(lake: Lake, folder: str) -> None:
    with lake.table("a.b", options=OPTIONS) as table:
        gone = paths_of(table, folder)
        kept = {path: table._open.stored.objects.get(path).payload for path in gone}
        for path in gone:
            table._open.stored.objects.delete(path)

        old = table.snapshot()
        calls: list[Callable[[], object]] = [
            lambda: table.get(100),
            lambda: table.get_many([100]),
            lambda: table.scan().to_arrow(),
            lambda: table.scan("id != 100").count(),
            lambda: table.scan(key_range=(0, None)).to_arrow(),
            lambda: table.delete_where("v = 1"),
            lambda: old.get(100),
            lambda: old.get_many([100]),
            lambda: old.scan().to_arrow(),
        ]
        for call in calls:
            with pytest.raises(Corruption, match="has lost a file") as missing:
                call()
            assert missing.value.path in gone
        old.close()
        with pytest.raises(Corruption):
            table.verify()
        table.put({"id": 9_000, "v": 3, "text": "still writable"})
        assert table.get(9_000) is not None

        for path, payload in kept.items():
            table._open.stored.objects.put(path, payload)
        assert table.get(100) == expected(100)


@pytest.mark.parametrize(
    "change",
    [None, lambda _: b"", lambda p: p[: len(p) // 2], lambda p: bytes(len(p))],
    ids=["gone", "empty", "cut", "zeros"],
)
def test_an_index_file_is_made_anew(lake: Lake, change: Callable[[bytes], bytes] | None) -> None:
    with lake.table("a.b", options=OPTIONS) as table:
        for path in paths_of(table, "index"):
            if change is None:
                table._open.stored.objects.delete(path)
            else:
                table._open.stored.objects.put(
                    path, change(table._open.stored.objects.get(path).payload)
                )

        assert [read() for read in reads(table)] == RIGHT
        table.compact(full=True)
        assert [read() for read in reads(table)] == RIGHT


def test_the_index_of_another_file_is_not_believed(lake: Lake) -> None:
    with lake.table("a.b", options=OPTIONS) as table:
        objects = table._open.stored.objects
        other = lake.create_table("a.other", pa.schema(dict(COLUMNS)), "id", options=OPTIONS)
        other.upsert(rows(0, 100))
        other.flush()
        (foreign,) = (objects.get(path).payload for path in paths_of(other, "index"))
        for path in paths_of(table, "index"):
            objects.put(path, foreign)

        assert [read() for read in reads(table)] == RIGHT
