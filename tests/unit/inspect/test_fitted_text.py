"""Lines never get wider than the page, and lose no word when they are broken."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from neve.inspect.page import clipped, wrapped


def lines_of(text: str, columns: int, *, indent: int = 2) -> list[str]:
    return [line.plain for line in wrapped(Text(text), columns, indent=indent)]


def test_a_word_longer_than_a_line_is_broken_where_the_line_ends() -> None:
    assert lines_of("in /a/very/long/path here", 10) == [
        "in",
        "  /a/very/",
        "  long/pat",
        "  h here",
    ]


def test_wide_characters_count_twice() -> None:
    assert clipped(Text("雪雪雪雪"), 6).plain == "雪雪 …"
    assert lines_of("雪雪 雪雪", 5) == ["雪雪", "  雪", "  雪"]


def test_a_line_is_broken_between_words_and_its_rest_is_indented() -> None:
    text = "  ✗ checksum mismatch at byte 11,498: 7 bytes dropped"

    assert lines_of(text, 30, indent=4) == [
        "  ✗ checksum mismatch at byte",
        "    11,498: 7 bytes dropped",
    ]


def test_styles_go_with_their_words() -> None:
    text = Text.assemble("one ", ("two three", "bold"), " four")

    lines = [*wrapped(text, 8, indent=2)]

    styled = [[line.plain[span.start : span.end] for span in line.spans] for line in lines]
    assert [line.plain for line in lines] == ["one two", "  three", "  four"]
    assert styled == [["two"], ["three"], []]


def test_what_fits_stays_as_it_is() -> None:
    text = Text("short", "bold")

    assert clipped(text, 5) is text
    assert lines_of("short", 5) == ["short"]
    assert lines_of("", 5) == [""]


@given(st.text(alphabet="ab 雪 ", max_size=80), st.integers(6, 40), st.integers(0, 4))
def test_no_line_is_wider_than_the_page_and_no_letter_is_lost(
    text: str, columns: int, indent: int
) -> None:
    lines = lines_of(text, columns, indent=indent)

    assert max(map(cell_len, lines)) <= columns
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert cell_len(clipped(Text(text), columns).plain) <= columns
