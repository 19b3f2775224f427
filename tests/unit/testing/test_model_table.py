"""The model of a table: rows by key, and what they were at each Version."""

from datetime import UTC, datetime, timedelta

from neve.testing.model_table import Added, DefaultSet, Dropped, ModelTable, Renamed, Row


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


def test_a_write_of_some_columns_leaves_the_others_or_gives_them_their_default() -> None:
    model = model_with(1)
    model.evolve([Added("note", default="-")])
    model.evolve([DefaultSet("note", "+")])

    written = [{**row(each, "new"), "note": "unread"} for each in (1, 2)]
    model.upsert_columns(written, ["word"])

    assert model.rows == {
        (1,): {**row(1, "new"), "note": "-"},
        (2,): {**row(2, "new"), "note": "+"},
    }


def test_conditional_writes_are_written_only_where_the_row_is_as_expected() -> None:
    model = model_with(1)

    assert not model.put_if_absent(row(1, "a"))
    assert model.put_if_absent(row(2, "b"))
    assert not model.compare_and_put(row(1, "c"), row(1, "other"))
    assert model.compare_and_put(row(1, "d"), row(1))
    assert model.rows == {(1,): row(1, "d"), (2,): row(2, "b")}


def test_an_evolution_turns_rows_and_leaves_versions_as_they_were() -> None:
    model = model_with(1)
    model.commit(2)

    model.evolve([Renamed("id", "key"), Dropped("word"), Added("word", default=7)])
    model.rewrite(3)
    model.put({"key": 2, "word": 8})

    assert model.primary_key == ("key",)
    assert model.at(2) == {(1,): row(1)}
    assert model.at(3) == model.at_present(2) == {(1,): {"key": 1, "word": 7}}
    assert (model.age_of(2), model.age_of(3)) == (0, 1)
    assert model.rows[(2,)] == {"key": 2, "word": 8}


def test_a_rollback_behind_an_evolution_has_the_columns_of_today() -> None:
    model = model_with(1)
    model.commit(2)
    model.evolve([Renamed("word", "text")])
    model.rewrite(3)
    model.delete((1,))
    model.commit(4)

    model.rollback(2, version=5)

    assert model.at(5) == model.rows == {(1,): {"id": 1, "text": ""}}


def test_a_copy_evolves_on_its_own() -> None:
    model = model_with(1)
    other = model.copy()

    other.evolve([Added("more", default=1)])

    assert (model.age, other.age) == (0, 1)
    assert model.defaults == {}
    assert model.rows == {(1,): row(1)}


def test_rows_expire_when_time_passes_and_versions_keep_them() -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    model = ModelTable(["id"], ttl=("ts", timedelta(hours=1)))
    model.upsert([{"id": 1, "ts": start}, {"id": 2, "ts": None}])
    model.commit(2)
    model.evolve([Renamed("ts", "at")])
    an_hour_later = int(start.timestamp() * 1_000) + 3_600_000

    model.pass_time(an_hour_later - 1)
    assert set(model.rows) == {(1,), (2,)}
    model.pass_time(an_hour_later)

    assert model.rows == {(2,): {"id": 2, "at": None}}
    assert set(model.at(2)) == {(1,), (2,)}
    assert set(model.unexpired(model.at(2), an_hour_later, age=0)) == {(2,)}
    assert model.copy().time_column == "at"
