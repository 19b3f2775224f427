"""Rows in a bucket: jobs write them and readers read them; only a live writer needs a disk."""

import pyarrow as pa
import pytest

import neve
from neve.jobs.maintenance import CommittedMaintenance
from neve.testing.s3_servers import MotoServer
from tests.unit.jobs.bulk_jobs import Jobs

pytestmark = pytest.mark.s3


def test_rows_that_jobs_commit_to_a_bucket_are_read_compacted_and_verified(
    moto: MotoServer, prefix: str
) -> None:
    with neve.open(moto.at.location(prefix), storage_options=moto.at.storage_options()) as lake:
        schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
        lake.create_table("a.b", schema, ["id"]).close()
        with lake.table("a.b", read_only=True) as table:
            parts = table._open.engine.parts
            Jobs(parts).upsert([{"id": number, "v": 0} for number in range(100)])
            second = Jobs(parts).upsert([{"id": number, "v": 1} for number in range(50, 60)])
            Jobs(parts).delete([3])
            table.refresh()

            assert table.scan().count() == 99
            assert table.get(55) == {"id": 55, "v": 1}
            assert table.get(3) is None
            assert table.at(version=second.version).get(3) == {"id": 3, "v": 0}
            assert table.changes(since=second.version).read_all().num_rows == 1
            CommittedMaintenance(parts, options=neve.TableOptions()).compact(full=True)
            table.refresh()
            assert table.files()["deleted_count"].to_pylist() == [0]
            assert table.scan("v = 1").count() == 10
            assert table.verify().row_count == 99


def test_a_live_writer_is_refused_in_a_bucket_before_anything_is_written(
    moto: MotoServer, prefix: str
) -> None:
    with neve.open(moto.at.location(prefix), storage_options=moto.at.storage_options()) as lake:
        schema = pa.schema({"id": pa.int64()})
        with pytest.raises(neve.InvalidArgument, match="object store") as refusal:
            lake.create_table("a.b", schema, ["id"]).put({"id": 1})

    assert refusal.value.hint
