r"""Filters as text, in PyIceberg's filter language, with more patterns for `like`.

    either      joined  ( "or" joined )*
    joined      denied  ( "and" denied )*
    denied      "not" denied  |  "(" either ")"  |  asked
    asked       column  comparison  literal               amount >= 5
                literal  comparison  column               5 <= amount
                column  [ "not" ] "in" "(" literals ")"   status in ('new', 'paid')
                column  [ "not" ] "like" 'pattern'        name like '%son'
                column  "between" literal "and" literal
                column  "is" [ "not" ] ( "null" | "nan" )
                "true"  |  "false"
    column      name  |  "name"  |  column "." column
    literal     'text', with '' for a quote  |  12  |  -3.5  |  true  |  false

Keywords are case-insensitive. Dates, times and the like are written as text, bytes as hexadecimal
text. In a pattern % matches any characters and _ one; \% and \_ match the characters themselves
(PyIceberg knows only a % at the end, and takes _ literally).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from neve.errors import InvalidArgument, LimitExceeded
from neve.model.display import shown
from neve.model.predicate import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    PREDICATE_DEPTH_MAX,
    And,
    ColumnName,
    Or,
    Predicate,
    col,
)

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^'\n\r\\]|''|\\[^\n\r])*')
    | (?P<quoted>"(?:[^"\\\n\r]|\\["\\])*")
    | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<word>[A-Za-z_][A-Za-z0-9_$]*)
    | (?P<sign><=|>=|==|!=|<>|[<>=(),.])
    )""",
    re.VERBOSE,
)
_END: Final = re.compile(r"\s*\Z")
# Longer ones do not fit any column, and Python refuses to parse some.
_DIGITS_MAX: Final = 100

_Compare = Callable[[ColumnName, object], Predicate]
_COMPARISONS: Final[dict[str, _Compare]] = {
    "=": lambda column, value: column == value,
    "==": lambda column, value: column == value,
    "!=": lambda column, value: column != value,
    "<>": lambda column, value: column != value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}
_NO_ARITHMETIC: Final = (
    "A filter does not calculate: compare a column with a value, and put text and dates in single "
    "quotes"
)
# Operators of other languages, and what to write instead.
_SIGN_HINTS: Final = {
    "'": (
        "End the text that begins there: write a quote in it twice, and use neve.col for text with "
        "line breaks or with a backslash at its end"
    ),
    "&": "Write and between conditions: a > 1 and b < 2",
    "|": "Write or between conditions: a > 1 or b < 2",
    "!": "Write not before a condition: not a > 1",
    "~": "Write not before a condition: not a > 1",
    **dict.fromkeys("+-*/%", _NO_ARITHMETIC),
}
# What `5 < x` says of x.
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    def says(self, word: str) -> bool:
        return self.kind in ("word", "sign") and self.text.lower() == word


def parse_filter(text: str) -> Predicate:
    """Parse a predicate; raises InvalidArgument naming the place of a mistake."""
    return _Parser(text).parse()


class _Parser:
    """Reads tokens from left to right; `_at` is the next one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Predicate:
        predicate = self._either()
        if self._next.kind != "end":
            raise self._mistake("expected and, or, or the end")
        return predicate

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _accept(self, word: str) -> bool:
        found = self._next.says(word)
        self._at += found
        return found

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._mistake(f"expected {word}")

    def _mistake(self, expected: str, *, hint: str | None = None) -> InvalidArgument:
        token = self._next
        found = "the end" if token.kind == "end" else shown(token.text)
        if token.kind == "number" and token.text.startswith(("+", "-")):
            hint = _NO_ARITHMETIC  # where a literal is allowed, it is not a mistake
        return InvalidArgument(
            f"filter {shown(self._text)} cannot be read at character {token.at + 1}: {expected}, "
            f"found {found}",
            hint=hint or "Write for example: amount > 5 and status in ('new', 'paid')",
        )

    def _either(self) -> Predicate:
        operands = [self._joined()]
        while self._accept("or"):
            operands.append(self._joined())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _joined(self) -> Predicate:
        operands = [self._denied()]
        while self._accept("and"):
            operands.append(self._denied())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _denied(self) -> Predicate:
        self._depth += 1
        if self._depth > PREDICATE_DEPTH_MAX:
            raise LimitExceeded(
                "the filter is nested too deeply",
                limit=PREDICATE_DEPTH_MAX,
                hint="Join conditions side by side, or use in",
            )
        if self._accept("not"):
            predicate = ~self._denied()
        elif self._accept("("):
            predicate = self._either()
            self._expect(")")
        else:
            predicate = self._asked()
        self._depth -= 1
        return predicate

    def _asked(self) -> Predicate:
        if self._at_literal():
            return self._asked_backwards()
        column = self._column()
        if self._accept("is"):
            return self._asked_is(column)
        if self._accept("between"):
            low = self._literal()
            self._expect("and")
            return (column >= low) & (column <= self._literal())
        is_denied = self._accept("not")
        if self._accept("in"):
            members = self._members()
            return column.not_in(members) if is_denied else column.is_in(members)
        if self._accept("like"):
            predicate = self._like(column)
            return ~predicate if is_denied else predicate
        if is_denied:
            raise self._mistake("expected in or like")
        compare = _COMPARISONS.get(self._next.text) if self._next.kind == "sign" else None
        if compare is None:
            raise self._mistake("expected a comparison, in, like, between or is")
        self._at += 1
        return compare(column, self._literal())

    def _asked_backwards(self) -> Predicate:
        value = self._literal()
        sign = self._next.text if self._next.kind == "sign" else ""
        if sign in _COMPARISONS:
            self._at += 1
            return _COMPARISONS[_MIRRORED.get(sign, sign)](self._column(), value)
        if isinstance(value, bool):
            return ALWAYS_TRUE if value else ALWAYS_FALSE
        raise self._mistake("expected a comparison")

    def _asked_is(self, column: ColumnName) -> Predicate:
        is_denied = self._accept("not")
        if self._accept("null"):
            return column.not_null() if is_denied else column.is_null()
        if self._accept("nan"):
            return column.not_nan() if is_denied else column.is_nan()
        raise self._mistake("expected null or nan")

    def _members(self) -> list[object]:
        self._expect("(")
        members = [self._literal()]
        while self._accept(","):
            members.append(self._literal())
        self._expect(")")
        return members

    def _like(self, column: ColumnName) -> Predicate:
        if self._next.kind != "text":
            raise self._mistake("expected text in single quotes")
        self._at += 1
        return column.like(_unquoted(self._tokens[self._at - 1].text))

    def _column(self) -> ColumnName:
        parts = [self._name()]
        while self._accept("."):
            parts.append(self._name())
        return col(".".join(parts))

    def _name(self) -> str:
        token = self._next
        if token.kind == "word":
            self._at += 1
            return token.text
        if token.kind == "quoted":
            self._at += 1
            return re.sub(r'\\(["\\])', r"\1", token.text[1:-1])
        raise self._mistake("expected a column")

    def _at_literal(self) -> bool:
        token = self._next
        return token.kind in ("text", "number") or token.says("true") or token.says("false")

    def _literal(self) -> object:
        if not self._at_literal():
            raise self._mistake(
                "expected a literal",
                hint="Nothing equals NULL: write is null or is not null"
                if self._next.says("null")
                else "Put text, dates and times in single quotes",
            )
        token = self._next
        self._at += 1
        if token.kind == "text":
            return _unquoted(token.text)
        if token.kind == "word":
            return token.says("true")
        is_whole = len(token.text) <= _DIGITS_MAX and token.text.lstrip("+-").isdigit()
        return int(token.text) if is_whole else Decimal(token.text)


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while not _END.match(text, at):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            raise InvalidArgument(
                f"filter {shown(text)} cannot be read at character {start + 1}: "
                f"unexpected {shown(text[start])}",
                hint=_SIGN_HINTS.get(
                    text[start],
                    "Put text in single quotes, and names with other signs in double quotes",
                ),
            )
        kind = found.lastgroup
        tokens.append(_Token(kind, found.group(kind), found.start(kind)))
        at = found.end()
    tokens.append(_Token("end", "", len(text)))
    return tokens


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
