"""What can be wrong with a bucket: typed errors that name it, no secret, nothing half committed."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.errors import NeveError
from neve.storage.open_store import open_store
from neve.testing.faulty_store import WRITES, Fault, Operation, PlannedFault
from neve.testing.s3_servers import MotoServer

pytestmark = pytest.mark.s3

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})
BY_HAND = neve.TableOptions(background=False)
READS = frozenset(Operation) - WRITES


def opened(moto: MotoServer, prefix: str, **more: object) -> Lake:
    options = moto.at.storage_options(timeout_seconds="2", patience_seconds="0.5")
    return neve.open(moto.at.location(prefix), storage_options=options, **more)  # type: ignore[arg-type]


def everything_said(error: BaseException | None) -> str:
    """Return the texts of an error and of all that are chained to it."""
    said = []
    while error is not None:
        said += [str(error), repr(error), *getattr(error, "__notes__", ())]
        error = error.__cause__ or error.__context__
    return "\n".join(said)


def found(moto: MotoServer, prefix: str) -> list[int]:
    moto.application.follow([])
    with opened(moto, prefix) as lake:
        rows = lake.table("a.b", options=BY_HAND).scan().to_arrow().to_pylist()
    return sorted(row["id"] for row in rows)


@pytest.fixture
def lake(moto: MotoServer, prefix: str) -> Iterator[Lake]:
    """Yield a lake with a table of a flushed and a logged row."""
    with opened(moto, prefix) as made:
        table = made.create_table("a.b", SCHEMA, ["id"], options=BY_HAND)
        table.put({"id": 1, "v": 1})
        table.flush()
        table.put({"id": 2, "v": 2})
        yield made
        moto.application.follow([])


REFUSALS = [
    ("400 Bad Request", "ExpiredToken", "new credentials"),
    ("403 Forbidden", "RequestTimeTooSkewed", "clock"),
    ("403 Forbidden", "AccessDenied", "credentials"),
    ("403 Forbidden", "InvalidAccessKeyId", "credentials"),
    ("404 Not Found", "NoSuchBucket", "bucket"),
    ("501 Not Implemented", "NotImplemented", "conditional writes"),
]


@pytest.mark.parametrize("refused", REFUSALS)
def test_a_write_that_is_refused_says_why_and_commits_nothing(
    moto: MotoServer, prefix: str, lake: Lake, refused: tuple[str, str, str]
) -> None:
    status, code, hint = refused
    table = lake.table("a.b")
    moto.application.refuse(status, code, operations=WRITES)

    with pytest.raises(neve.OutcomeUnknown) as refusal:
        table.put({"id": 3, "v": 3})

    said = everything_said(refusal.value)
    assert code in said
    assert hint in said
    assert moto.at.bucket in said
    assert ".slot" in said
    assert moto.at.secret_access_key not in said
    for call in (table.flush, lambda: table.put({"id": 4, "v": 4}), lambda: table.delete(1)):
        with pytest.raises(NeveError):
            call()
    assert table.get(1) == {"id": 1, "v": 1}
    lake.close()
    assert found(moto, prefix) == [1, 2]


@pytest.mark.parametrize("refused", REFUSALS[:-1])
def test_a_bucket_that_refuses_everything_is_not_opened(
    moto: MotoServer, prefix: str, lake: Lake, refused: tuple[str, str, str]
) -> None:
    status, code, hint = refused
    lake.close()
    moto.application.refuse(status, code, operations=frozenset(Operation))

    with pytest.raises(neve.StorageRefused) as refusal:
        opened(moto, prefix).table("a.b").get(1)

    said = everything_said(refusal.value)
    assert hint in said
    assert moto.at.bucket in said
    assert moto.at.secret_access_key not in said
    assert found(moto, prefix) == [1, 2]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_bucket_that_may_only_be_read_is_read(
    moto: MotoServer, prefix: str, lake: Lake, read_only: bool
) -> None:
    lake.close()
    moto.application.refuse("403 Forbidden", "AccessDenied", operations=WRITES)
    with opened(moto, prefix, read_only=read_only) as again:
        table = again.table("a.b", read_only=True)
        assert table.get(1) == {"id": 1, "v": 1}
        assert table.scan().count() == 2
        with table.snapshot() as snapshot:
            assert snapshot.scan().to_arrow().num_rows == 2
        assert table.changes(0).read_all().num_rows == 1
        assert table.verify().is_sound
        table.refresh()
        assert table.stats().row_count == 1
    with pytest.raises(neve.StorageRefused) as refusal, opened(moto, prefix) as again:
        again.table("a.b", options=BY_HAND).put({"id": 3, "v": 3})
    assert "AccessDenied" in everything_said(refusal.value)
    assert found(moto, prefix) == [1, 2]


@pytest.mark.parametrize("kind", [Fault.BEFORE, Fault.BUSY])
def test_throttling_is_waited_for_and_then_reported(
    moto: MotoServer, prefix: str, lake: Lake, kind: Fault
) -> None:
    table = lake.table("a.b")
    moto.application.follow([PlannedFault(fault=kind, operation=Operation.PUT_IF_ABSENT, times=2)])
    table.put({"id": 3, "v": 3})
    moto.application.follow(
        [PlannedFault(fault=kind, operation=each, times=10_000) for each in Operation]
    )
    with pytest.raises(NeveError) as refusal:
        table.put({"id": 4, "v": 4})

    said = everything_said(refusal.value)
    assert "503" in said
    assert moto.at.bucket in said
    lake.close()
    # With BUSY it was carried out, and the error says that it is not known.
    assert isinstance(refusal.value, neve.OutcomeUnknown)
    assert found(moto, prefix)[:3] == [1, 2, 3]


def read_without(moto: MotoServer, prefix: str) -> object:
    """Return the rows, or whether the error names what is missing."""
    try:
        with opened(moto, prefix, read_only=True) as lake:
            return lake.table("a.b").scan().to_arrow().sort_by("id").to_pylist()
    except NeveError as error:
        # A lake without the head of its catalog has no table of this name.
        said = everything_said(error)
        is_secret = moto.at.secret_access_key in said
        return "named" if (error.path or "a.b" in said) and not is_secret else said


def test_a_bucket_that_loses_an_object_is_never_read_wrongly(
    moto: MotoServer, prefix: str, lake: Lake
) -> None:
    """Each object is lost in turn: answers are right, or an error names what is missing."""
    table = lake.table("a.b")
    table.put({"id": 1, "v": 10})
    table.flush()
    table.put({"id": 5, "v": 5})
    lake.close()
    expected = [{"id": 1, "v": 10}, {"id": 2, "v": 2}, {"id": 5, "v": 5}]
    store = open_store(moto.at.location(prefix), storage_options=moto.at.storage_options())
    wrong = []
    for info in list(store.list("")):
        payload = store.get(info.path).payload
        store.delete(info.path)
        wrong += [info.path] * (read_without(moto, prefix) not in (expected, "named"))
        store.put(info.path, payload)

    assert wrong == []
    assert found(moto, prefix) == [1, 2, 5]
