"""Numbers on the command line are taken in every form in which they are met."""

import click
import pytest

from neve.cli.options import WholeNumber


@pytest.mark.parametrize(
    "text", ["abc", "", " ", "-1", "1.5", "1,2", "0x", "0xg", "1e3", "1_000", "9" * 5_000, "٣"]
)
def test_what_is_no_number_of_zero_or_more_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a number of 0 or more; write it like"):
        WholeNumber().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("11498", 11_498),
        ("11,498", 11_498),
        ("1,234,567", 1_234_567),
        ("0x2cea", 11_498),
        ("0X2CEA", 11_498),
        ("007", 7),
    ],
)
def test_decimal_with_and_without_commas_and_hexadecimal_are_numbers(
    text: str, number: int
) -> None:
    assert WholeNumber().convert(text, None, None) == number


def test_a_default_is_taken_as_it_is() -> None:
    assert WholeNumber().convert(5, None, None) == 5
