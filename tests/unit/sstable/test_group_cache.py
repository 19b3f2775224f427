"""What the group cache keeps, what it lets go of, and what it must never keep."""

import pyarrow as pa
import pytest

from neve.errors import Corruption
from neve.sstable.parquet_groups import GroupCache


def batch(size: int) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array(range(size), pa.int64())})


BATCH_BYTES = batch(10).get_total_buffer_size()


def test_a_group_is_decoded_once() -> None:
    cache = GroupCache(10 * BATCH_BYTES)
    decoded: list[int] = []

    def decode() -> pa.RecordBatch:
        decoded.append(1)
        return batch(10)

    first = cache.load("a", 0, decode)
    assert cache.load("a", 0, decode) is first
    assert len(decoded) == 1
    assert cache.byte_count == BATCH_BYTES


def test_the_group_used_longest_ago_makes_room() -> None:
    cache = GroupCache(2 * BATCH_BYTES)
    for n in (0, 1):
        cache.load("a", n, lambda: batch(10))
    cache.find("a", 0)
    cache.load("a", 2, lambda: batch(10))
    assert [cache.find("a", n) is not None for n in range(3)] == [True, False, True]
    assert cache.byte_count == 2 * BATCH_BYTES


def test_a_group_larger_than_the_cache_is_given_and_not_kept() -> None:
    cache = GroupCache(BATCH_BYTES - 1)
    assert cache.load("a", 0, lambda: batch(10)).batch.num_rows == 10
    assert cache.find("a", 0) is None
    assert cache.byte_count == 0


def test_a_slice_counts_for_all_the_memory_it_keeps_alive() -> None:
    cache = GroupCache(10 * BATCH_BYTES)
    cache.load("a", 0, lambda: batch(10).slice(0, 1))
    assert cache.byte_count == BATCH_BYTES


def test_key_columns_and_whole_groups_are_kept_apart() -> None:
    cache = GroupCache(10 * BATCH_BYTES)
    whole = cache.load("a", 0, lambda: batch(10))
    keys = cache.load("a", 0, lambda: batch(10), names=("id",))
    assert keys is not whole
    assert cache.find("a", 0) is whole


def test_dropping_a_file_leaves_the_others() -> None:
    cache = GroupCache(10 * BATCH_BYTES)
    for path in ("a", "b"):
        cache.load(path, 0, lambda: batch(10))
    cache.drop_file("a")
    assert cache.find("a", 0) is None
    assert cache.find("b", 0) is not None
    assert cache.byte_count == BATCH_BYTES


def test_a_group_whose_file_is_dropped_while_it_is_decoded_is_not_kept() -> None:
    cache = GroupCache(10 * BATCH_BYTES)

    def decode() -> pa.RecordBatch:
        cache.drop_file("a")
        return batch(10)

    assert cache.load("a", 0, decode).batch.num_rows == 10
    assert cache.find("a", 0) is None
    assert cache.byte_count == 0


def test_a_drop_of_another_file_does_not_hinder() -> None:
    cache = GroupCache(10 * BATCH_BYTES)

    def decode() -> pa.RecordBatch:
        cache.drop_file("b")
        return batch(10)

    cache.load("a", 0, decode)
    assert cache.find("a", 0) is not None


def test_clearing_forgets_what_is_being_decoded_too() -> None:
    cache = GroupCache(10 * BATCH_BYTES)

    def decode() -> pa.RecordBatch:
        cache.clear()
        return batch(10)

    cache.load("a", 0, decode)
    assert cache.find("a", 0) is None


def test_a_failed_decoding_leaves_nothing_behind() -> None:
    cache = GroupCache(10 * BATCH_BYTES)

    def decode() -> pa.RecordBatch:
        raise Corruption("damaged")

    with pytest.raises(Corruption):
        cache.load("a", 0, decode)
    assert cache.load("a", 0, lambda: batch(10)) is cache.find("a", 0)


def test_two_that_decode_one_group_at_once_are_counted_once() -> None:
    cache = GroupCache(10 * BATCH_BYTES)

    def decode() -> pa.RecordBatch:
        cache.load("a", 0, lambda: batch(10))
        return batch(10)

    cache.load("a", 0, decode)
    assert cache.byte_count == BATCH_BYTES
