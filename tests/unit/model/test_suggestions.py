"""A name that is not there: the most similar one is suggested, or those there are."""

from neve.model.suggestions import known_names_hint, similar_name, similar_name_hint


def test_a_similar_name_is_suggested_and_an_unlike_one_is_not() -> None:
    assert similar_name_hint("shop.ordes", ["shop.orders", "x.y"]) == "Did you mean 'shop.orders'?"
    assert similar_name_hint("zzz", ["shop.orders"]) is None


def test_a_name_in_another_case_is_the_most_similar_one() -> None:
    names = [*(f"amount_{number}" for number in range(2_000)), "AMOUNT"]

    assert similar_name("amount", names) == "AMOUNT"


def test_a_name_of_absurd_length_is_compared_with_nothing() -> None:
    assert similar_name("x" * 100_000, ["x" * 99_999]) is None


def test_names_are_listed_where_none_is_similar() -> None:
    assert known_names_hint("zzz", ["id", "name"]) == "The table has 'id', 'name'"
    many = [f"c{number}" for number in range(12)]
    assert known_names_hint("zzz", many, where="The file").endswith("'c9' and 2 more")
