"""The prose is plain English: subject, verb, object, and none of the words that read translated.

Documents have none of these words, and neither has source: docstrings, comments, messages, help.
"""

import ast
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "neve"
HISTORY: Final = {"CHANGELOG.md"}
"""Pages that say what was, in the words of their day; so do all decisions."""
DOCUMENTS: Final = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.name not in HISTORY and path.parent.name != "adr"
)
DRAWINGS: Final = sorted((ROOT / "docs" / "images").glob("*.svg"))

WORST: Final = {
    r"whoever": "name who: the reader, the next writer, a process",
    r"somebody|someone else|anybody|everybody": "name who: another process, a user",
    r"nobody": "no reader, no process, no one",
    r"of which|by which|in which of": "start a second sentence",
    r"anew": "again",
    r"told|tells?": "says, reports; knows from; distinguishes",
    r"(?<![Tt]here )(?:is|are|was|were) no \w+": "is not a …",
    r"stands? for|stood for": "is, means",
    r"behind": "after, in order; below, in layers",
    r"mend(?:s|ed|ing)?": "fix",
    r"it is said|what is said|is said (?:of|what|which)": "reports",
    r"lets? go(?: of)?|letting go": "release, expire, delete",
    r"brings? about|bear(?:s)? out": "causes; confirms",
    r"pass(?:es|ed)? over": "skip",
    r"taken? for granted": "assume",
    r"without a word|in silence": "silently",
    r"however it may|be it": "say what is meant",
    r"knows? nothing of": "does not know",
    r"hardly any\w+": "rarely",
    r"(?<=; )gives|gives (?:how|back|None)": "returns",
}
WORST_IN_NAMES: Final = re.compile(
    r"(?:^|_)(?:told|tells?|telling|behind|mend(?:s|ed)?|let_go|anew|whoever|nobody)(?:_|$)"
)
ALLOWED: Final = re.compile(
    # A writer falls behind, and a crash leaves files behind: in English, too.
    r"\b(?:falls?|fallen|fell|falling)\s+behind\b"
    r"|\b(?:left|leaves?|leaving)\b[^.;:]{0,40}?\bbehind\b"
    r"|\b(?:is|are|was|were) no (?:longer|more|one|less|fewer|larger|older|newer)\b"
    r"|\bone of which\b|\bone behind\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Found:
    """A word that reads translated, and where it is."""

    place: str
    word: str
    advice: str

    def __str__(self) -> str:
        return f"{self.place}: {self.word!r}: {self.advice}"


PATTERN: Final = re.compile(
    "|".join(rf"(?P<w{number}>\b(?:{word})\b)" for number, word in enumerate(WORST)),
    re.IGNORECASE,
)
ADVICE: Final = tuple(WORST.values())


def found_in(text: str, path: Path, *, first_line: int = 1) -> Iterator[Found]:
    """Yield the worst words of a text, which may go over several lines."""
    blank = ALLOWED.sub(lambda match: re.sub(r"\S", " ", match[0]), text)
    for match in PATTERN.finditer(blank):
        assert match.lastgroup is not None
        line = first_line + text.count("\n", 0, match.start())
        yield Found(
            place=f"{path.relative_to(ROOT)}:{line}",
            word=" ".join(match[0].split()),
            advice=ADVICE[int(match.lastgroup[1:])],
        )


def prose_of(page: str) -> str:
    """Return a page without code and without what a program wrote; lines keep their numbers."""
    not_prose = re.compile(
        r"^```.*?^```|<!--.*?-->|`[^`\n]*`"
        r"|(?<=\]\()[^)\s]*",
        re.MULTILINE | re.DOTALL,
    )
    measured = re.compile(r"<!-- results: .*?<!-- end of results -->", re.DOTALL)

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return not_prose.sub(blank, measured.sub(blank, page))


def words_of(source: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments and the texts of a module, with the line each starts in."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    with source.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in kinds:
                yield token.start[0], token.string


def package_of(source: Path) -> str:
    return source.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_reads_as_if_it_was_written_in_english(path: Path) -> None:
    found = [*found_in(prose_of(path.read_text()), path)]

    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.name)
def test_a_drawing_is_labelled_in_english(path: Path) -> None:
    labels = re.sub(r"<style>.*?</style>|<[^>]+>", " ", path.read_text(), flags=re.DOTALL)

    found = [*found_in(labels, path)]

    assert not found, "\n".join(map(str, found))


def test_the_source_has_no_translated_words() -> None:
    found = [
        one
        for path in sorted(SOURCE.rglob("*.py"))
        # Most modules have none: only the others are taken into tokens.
        if PATTERN.search(path.read_text())
        for line, text in words_of(path)
        for one in found_in(text, path, first_line=line)
    ]

    assert not found, "\n".join(str(one) for one in found[:40])


def test_the_names_of_functions_and_classes_are_english() -> None:
    named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, named)
        and not node.name.startswith("test_")
        and node.name != "tell"  # of a file: Python's name
        and WORST_IN_NAMES.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name).lower())
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Whoever opens it is told.", ["Whoever", "told"]),
        ("A log that is no log, behind\nthe last one.", ["is no log", "behind"]),
        ("It falls behind, and leaves some files behind.", []),
        ("There is no lock, and it is no longer held.", []),
        ("`nobody` is a name", []),
        ("```\nwhoever\n```\n", []),
        ("<!-- results: x -->\nnobody\n<!-- end of results -->\nnobody", ["nobody"]),
    ],
)
def test_a_word_is_found_where_it_is_prose(text: str, words: list[str]) -> None:
    found = [*found_in(prose_of(text), ROOT / "page.md")]

    assert [one.word for one in found] == words
