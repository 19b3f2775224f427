"""The model of a table: rows by key, and what they were at each Version."""

from neve.testing.model_table import ModelTable, Row


def row(number: int, word: str = "") -> Row:
    return {"id": number, "word": word}


def model_with(*numbers: int) -> ModelTable:
    model = ModelTable(["id"])
    model.upsert(row(number) for number in numbers)
    return model


def test_the_newest_row_of_a_key_counts() -> None:
    model = model_with(1, 2)

    model.upsert([row(1, "a"), row(1, "b")])
    model.delete((2,))
    model.delete((9,))

    assert model.rows == {(1,): row(1, "b")}


def test_a_version_keeps_its_rows_while_the_table_goes_on() -> None:
    model = model_with(1)
    model.commit(2)

    model.put(row(1, "later"))
    model.delete_many([(1,)])
    model.commit(3)
    model.rewrite(5)

    assert model.at(1) == {}
    assert model.at(2) == {(1,): row(1)}
    assert model.at(3) == model.at(4) == model.at(5) == {}


def test_a_flush_of_nothing_leaves_the_version_as_it_is() -> None:
    model = model_with(1)
    model.commit(2)
    model.put(row(2))

    model.commit(2)

    assert model.at(2) == {(1,): row(1)}


def test_a_rollback_brings_old_rows_back_as_a_new_version() -> None:
    model = model_with(1)
    model.commit(2)
    model.put(row(2))
    model.commit(3)

    model.rollback(2, version=4)
    model.put(row(3))

    assert model.at(4) == {(1,): row(1)}
    assert list(model.rows) == [(1,), (3,)]


def test_a_copy_goes_its_own_way() -> None:
    model = model_with(1)
    other = model.copy()

    other.put(row(2))
    other.commit(2)
    other.tag("t", 2)

    assert list(model.rows) == [(1,)]
    assert model.version == 1
    assert model.tags == {}


def test_a_scan_is_ordered_by_key_and_leaves_the_end_out() -> None:
    model = model_with(3, 1, 2, 5)
    model.delete_where(lambda each: each["id"] == 2)

    assert [each["id"] for each in model.scan()] == [1, 3, 5]
    assert model.scan(key_range=((1,), (5,)), reverse=True) == [row(3), row(1)]
    assert model.scan(lambda each: each["id"] == 5) == [row(5)]


def test_expired_versions_are_forgotten() -> None:
    model = model_with(1)
    model.commit(2)

    model.expire([1])

    assert list(model.versions) == [2]
