r"""Predicates bound to the columns of a schema, and the patterns of `like`.

    BoundPredicate
    ├── Always             true or false of every row
    ├── BoundCondition     one column, one operator, plain values in the column's type
    ├── AllOf              every operand is true
    └── AnyOf              some operand is true

MODEL-18  There is no negation: binding pushes it down into the operators. So "false" and "unknown"
          are the same: neither matches a row.
MODEL-19  A row matches when the predicate is true of it. NULL makes every condition but is_null not
          true; NaN is unequal to everything and neither smaller nor greater.
MODEL-20  `evaluate` and `to_arrow` choose the same rows: they use the same kernels.
MODEL-21  Literals of `in` and `not in` are sorted and distinct. That of `like` is a pattern that is
          neither a whole text nor a prefix.
MODEL-22  A name is that of a column or, with dots, of a field inside a struct. A column is looked
          up by its whole name, dots included, before any struct.
MODEL-23  Dots lead into structs only: a name cannot select an element of a list or map.

A `LikePattern` is what `like` compares text with, as in SQL:

    %           any characters, or none
    _           exactly one character, of any number of bytes
    \% \_ \\    the character itself; a backslash before anything else is a backslash

A pattern matches the whole text and is case-sensitive.
"""

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import LimitExceeded, NotFound
from neve.model.arrow_types import child_fields, type_name
from neve.model.display import shown
from neve.model.plain_values import PlainValue, is_float, stored_array, stored_type
from neve.model.schema_view import ArrowArray, ColumnView, SchemaView, read_column
from neve.model.suggestions import known_names_hint

# Arrow compiles a pattern before matching rows; it cannot compile one of 100,000 wildcards.
LIKE_PATTERN_MAX: Final = 1_000

_ANY: Final = "%"
_ONE: Final = "_"
_ESCAPE: Final = "\\"
_SIGNS: Final = frozenset({_ANY, _ONE, _ESCAPE})


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern in pieces: pairs of a text and whether it is a wildcard."""

    pieces: tuple[tuple[str, bool], ...]

    @classmethod
    def parse(cls, pattern: str) -> "LikePattern":
        """Parse a pattern; raises LimitExceeded for one that is too long to compile."""
        if len(pattern) > LIKE_PATTERN_MAX:
            raise LimitExceeded(
                "the pattern of like is too long",
                limit=LIKE_PATTERN_MAX,
                actual=len(pattern),
                hint="Compare with = for a whole text, or shorten the pattern",
            )
        pieces: list[tuple[str, bool]] = []
        text = ""
        at = 0
        while at < len(pattern):
            sign = pattern[at]
            if sign == _ESCAPE and pattern[at + 1 : at + 2] in _SIGNS:
                at += 1
                text += pattern[at]
            elif sign in (_ANY, _ONE):
                if text:
                    pieces.append((text, False))
                    text = ""
                # Two in a row mean the same as one.
                if sign == _ONE or not pieces or pieces[-1] != (_ANY, True):
                    pieces.append((sign, True))
            else:
                text += sign
            at += 1
        if text:
            pieces.append((text, False))
        return cls(tuple(pieces))

    def __str__(self) -> str:
        return "".join(text if is_sign else escaped(text) for text, is_sign in self.pieces)

    @property
    def prefix(self) -> str:
        """The text that every match begins with."""
        return self.pieces[0][0] if self.pieces and not self.pieces[0][1] else ""

    @property
    def is_text(self) -> bool:
        """Whether only the prefix itself matches."""
        return not any(is_sign for _, is_sign in self.pieces)

    @property
    def is_prefix(self) -> bool:
        """Whether every text that begins with the prefix matches."""
        return self.pieces[bool(self.prefix) :] == ((_ANY, True),)


def escaped(text: str) -> str:
    """Return a pattern that only this text matches."""
    return "".join(f"{_ESCAPE}{sign}" if sign in _SIGNS else sign for sign in text)


@lru_cache(maxsize=256)
def like_regex(pattern: str) -> str:
    """Return a pattern as a regular expression for Arrow."""
    pieces = LikePattern.parse(pattern).pieces
    # Arrow searches anywhere in the text, so wildcards at the ends are left out.
    begins = "" if pieces and pieces[0] == (_ANY, True) else r"\A"
    ends = "" if pieces and pieces[-1] == (_ANY, True) else r"\z"
    middle = pieces[not begins : len(pieces) - (not ends and len(pieces) > 1)]
    words = "".join(_regex_of(text, is_sign=is_sign) for text, is_sign in middle)
    return f"(?s){begins}{words}{ends}"


def _regex_of(text: str, *, is_sign: bool) -> str:
    if is_sign:
        return ".*" if text == _ANY else "."
    return "".join(
        sign if sign.isalnum() or not sign.isascii() else f"\\x{ord(sign):02x}" for sign in text
    )


# Arrow walks a chain recursively, however it was joined; about 20,000 links crash the process.
EXPRESSION_CONDITIONS_MAX: Final = 1_000


class Operator(StrEnum):
    """What a condition asks of one column."""

    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    IN = "in"
    NOT_IN = "not in"
    IS_NULL = "is null"
    NOT_NULL = "is not null"
    IS_NAN = "is nan"
    NOT_NAN = "is not nan"
    STARTS_WITH = "starts with"
    NOT_STARTS_WITH = "does not start with"
    LIKE = "like"
    NOT_LIKE = "not like"


SET_OPERATORS: Final = frozenset({Operator.IN, Operator.NOT_IN})
_DENIALS: Final = frozenset(
    {Operator.NOT_IN, Operator.NOT_NAN, Operator.NOT_STARTS_WITH, Operator.NOT_LIKE}
)
_PATTERN_TESTS: Final = frozenset({Operator.LIKE, Operator.NOT_LIKE})

# Arrow's kernels take arrays and expressions alike, which their stubs cannot say.
_Kernel: TypeAlias = Callable[..., object]
_COMPARISONS: Final[dict[Operator, _Kernel]] = {
    Operator.EQ: pc.equal,
    Operator.NE: pc.not_equal,
    Operator.LT: pc.less,
    Operator.LE: pc.less_equal,
    Operator.GT: pc.greater,
    Operator.GE: pc.greater_equal,
}
_QUESTIONS: Final[dict[Operator, _Kernel]] = {
    Operator.IS_NULL: pc.is_null,
    Operator.NOT_NULL: pc.is_valid,
    Operator.IS_NAN: pc.is_nan,
    Operator.NOT_NAN: pc.is_nan,
}
_CONSTANT: Final[_Kernel] = pc.scalar
_IS_IN: Final[_Kernel] = pc.is_in
_STARTS_WITH: Final[_Kernel] = pc.starts_with
_MATCHES: Final[_Kernel] = pc.match_substring_regex
_INVERT: Final[_Kernel] = pc.invert
_AND: Final[_Kernel] = pc.and_kleene
# Where a struct is NULL, so are its fields.
_INSIDE: Final[_Kernel] = pc.struct_field


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """The column a condition is about, or the field inside one."""

    field_id: int
    """Of the column, also when a field inside it is meant."""
    name: str
    """With dots down to the field."""
    type: pa.DataType
    around: ColumnView | None = None
    """The column that the field is inside; None when the column itself is meant."""
    places: tuple[int, ...] = ()
    """Of the field, and of those around it, each in its struct."""


class BoundPredicate(ABC):
    """A condition on rows, tied to the columns of one schema."""

    __slots__ = ()

    @property
    @abstractmethod
    def field_ids(self) -> frozenset[int]:
        """Columns that must be read to evaluate it."""

    @abstractmethod
    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for every row whether it matches; never NULL. Raises SchemaMismatch."""

    @abstractmethod
    def to_arrow(self) -> pc.Expression:
        """Return the filter as an Arrow expression over the columns' names.

        For rows in memory. Arrow's dataset scan skips Parquet row groups by bounds that leave out
        NaN, so it loses NaN rows that `!=` and `is_nan` should find; it also fails on the bounds of
        UUIDs. Use `evaluate` on rows read from files. Raises LimitExceeded for more conditions than
        Arrow can walk.
        """


@dataclass(frozen=True, slots=True)
class Always(BoundPredicate):
    """The same answer for every row."""

    answer: bool

    @property
    def field_ids(self) -> frozenset[int]:
        """Columns that must be read to evaluate it."""
        return frozenset()

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for every row whether it matches."""
        return pa.repeat(pa.scalar(self.answer), batch.num_rows)

    def to_arrow(self) -> pc.Expression:
        """Return the filter as an Arrow expression."""
        return pc.scalar(self.answer)


@dataclass(frozen=True, slots=True)
class BoundCondition(BoundPredicate):
    """A condition on one column."""

    column: BoundColumn
    operator: Operator
    literals: tuple[PlainValue, ...] = ()
    # The literals in Arrow's form, built once: a condition meets many batches.
    _values: ArrowArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        literals = self.literals
        if self.operator in SET_OPERATORS and is_float(self.column.type) and 0.0 in literals:
            # Arrow compares floats as numbers but looks for them in a set as bits.
            literals += (0.0, -0.0)
        values = pa.array(literals, type=stored_type(self.column.type))
        object.__setattr__(self, "_values", values)

    @property
    def field_ids(self) -> frozenset[int]:
        """Columns that must be read to evaluate it."""
        return frozenset({self.column.field_id})

    @property
    def literal(self) -> PlainValue:
        """The only literal of a comparison."""
        (literal,) = self.literals
        return literal

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for every row whether it matches."""
        asked = self.column
        column = read_column(batch, asked.around or asked, or_dictionary=True)
        if isinstance(column, pa.DictionaryArray):
            # Each value is compared once. The last one is that of rows without a value.
            values = column.dictionary
            places = cast("pa.Int32Array", column.indices.fill_null(len(values)))
            answers = self._answers(pa.concat_arrays([values, pa.nulls(1, values.type)]))
            return answers.take(places)
        if asked.places:
            column = cast("ArrowArray", _INSIDE(column, asked.places))
        return self._answers(stored_array(column))

    def _answers(self, column: ArrowArray) -> pa.BooleanArray:
        matches = cast("pa.BooleanArray", self._ask(column))
        # Without negation above it, "unknown" may become "false" here.
        return cast("pa.BooleanArray", matches.fill_null(False))

    def to_arrow(self) -> pc.Expression:
        """Return the filter as an Arrow expression."""
        asked = self.column
        column = pc.field((asked.around or asked).name)
        if asked.places:
            column = cast("pc.Expression", _INSIDE(column, asked.places))
        stored = stored_type(asked.type)
        if stored != asked.type:
            column = column.cast(stored)
        return cast("pc.Expression", self._ask(column))

    def holds_for(self, value: PlainValue) -> bool:
        """Return whether a value that is not NULL matches."""
        column = pa.array([value], stored_type(self.column.type))
        return bool(cast("pa.BooleanArray", self._ask(column))[0].as_py())

    def _ask(self, column: object) -> object:
        """Apply the operator's kernel to an array or an expression."""
        operator = self.operator
        if operator in _COMPARISONS:
            value: object = self._values[0]
            if isinstance(column, pc.Expression):
                value = _CONSTANT(value)
            return _COMPARISONS[operator](column, value)
        if operator in _QUESTIONS:
            answer = _QUESTIONS[operator](column)
        elif operator in SET_OPERATORS:
            answer = _IS_IN(column, value_set=self._values)
        elif operator in _PATTERN_TESTS:
            answer = _MATCHES(column, pattern=like_regex(cast("str", self.literal)))
        else:
            answer = _STARTS_WITH(column, pattern=self.literal)
        if operator not in _DENIALS:
            return answer
        # Arrow says that NULL is not in a set; MODEL-19 says it is neither in nor out.
        return _AND(_INVERT(answer), _QUESTIONS[Operator.NOT_NULL](column))


@dataclass(frozen=True, slots=True)
class Joined(BoundPredicate):
    """Several predicates, joined by "and" or by "or"."""

    operands: tuple[BoundPredicate, ...]
    needs_all: ClassVar[bool]
    """Whether it is true only when all operands are."""

    @property
    def field_ids(self) -> frozenset[int]:
        """Columns that must be read to evaluate it."""
        return frozenset().union(*(operand.field_ids for operand in self.operands))

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for every row whether it matches."""
        join = pc.and_ if self.needs_all else pc.or_
        return functools.reduce(join, (operand.evaluate(batch) for operand in self.operands))

    def to_arrow(self) -> pc.Expression:
        """Return the filter as an Arrow expression."""
        count = self.condition_count
        if count > EXPRESSION_CONDITIONS_MAX:
            raise LimitExceeded(
                "the predicate has too many conditions for an Arrow expression",
                limit=EXPRESSION_CONDITIONS_MAX,
                actual=count,
                hint="Use is_in for many values of one column, or evaluate batches",
            )
        join = operator.and_ if self.needs_all else operator.or_
        return functools.reduce(join, (operand.to_arrow() for operand in self.operands))

    @property
    def condition_count(self) -> int:
        """Conditions that it joins, at any depth."""
        return sum(
            operand.condition_count if isinstance(operand, Joined) else 1
            for operand in self.operands
        )


@dataclass(frozen=True, slots=True)
class AllOf(Joined):
    """Every operand is true; made by `all_of`."""

    needs_all = True


@dataclass(frozen=True, slots=True)
class AnyOf(Joined):
    """Some operand is true; made by `any_of`."""

    needs_all = False


def all_of(operands: Iterable[BoundPredicate]) -> BoundPredicate:
    """Join with "and", in the shortest form."""
    return _shortest(AllOf, operands)


def any_of(operands: Iterable[BoundPredicate]) -> BoundPredicate:
    """Join with "or", in the shortest form."""
    return _shortest(AnyOf, operands)


def _shortest(kind: type[Joined], operands: Iterable[BoundPredicate]) -> BoundPredicate:
    neutral = Always(answer=kind.needs_all)
    kept: list[BoundPredicate] = []
    for operand in operands:
        if operand == Always(answer=not kind.needs_all):
            return operand
        if operand != neutral:
            kept += operand.operands if isinstance(operand, kind) else (operand,)
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else kind(tuple(kept))


def named_field(name: str, schema: SchemaView) -> BoundColumn:
    """Return the field of a name; raises NotFound with similar names."""
    around = None if name in schema else _column_around(name, schema)
    if around is None:
        found = schema.column(name)
        return BoundColumn(found.field_id, found.name, found.type)
    column = schema.column(around)
    places: list[int] = []
    at, type_ = column.name, column.type
    while at != name:
        place, at, type_ = _next_field(name, at, type_)
        places.append(place)
    return BoundColumn(column.field_id, name, type_, column, tuple(places))


def _column_around(name: str, schema: SchemaView) -> str | None:
    """Return the longest column name that a dotted name starts with: `a.b` over `a` for `a.b.c`."""
    end = name.rfind(".")
    while end >= 0 and name[:end] not in schema:
        end = name.rfind(".", 0, end)
    return None if end < 0 else name[:end]


def _next_field(name: str, at: str, type_: pa.DataType) -> tuple[int, str, pa.DataType]:
    """Descend into one field of a struct; return its place, its full name and its type."""
    fields = child_fields(type_) if pa.types.is_struct(type_) else ()
    paths = [f"{at}.{field.name}" for field in fields]
    on_the_way = [
        (len(path), place)
        for place, path in enumerate(paths)
        if name == path or name.startswith(f"{path}.")
    ]
    if not on_the_way:
        raise NotFound(
            f"no field is named {shown(name)}",
            hint=known_names_hint(
                name[len(at) + 1 :], [each.name for each in fields], where=shown(at)
            )
            if fields
            else f"Use dots for structs only: {shown(at)} is of type {type_name(type_)}",
        )
    _, place = max(on_the_way)
    return place, paths[place], fields[place].type
