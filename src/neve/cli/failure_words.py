"""Errors in the words of the command line.

The library speaks to programs: it names Python's values and its own calls. What a command can run
into is said here in the words that can be typed instead. The number of a rule (U1, S4) stands
before the message for readers who know the rules; here it comes last, or not at all where the
message says what to do.
"""

import re
from typing import Final

from neve.errors import NeveError, NextMove

_RULE: Final = re.compile(r"^((?:.*: )?)([A-Z]{1,2}[0-9]{1,2}|[A-Z]+-[0-9]+): ", re.DOTALL)
_TYPES: Final = {
    "bool": "boolean",
    "extension<arrow.uuid>": "uuid",
    "date32[day]": "date",
    "double": "double",
    "fixed_size_binary": "fixed",
    "float": "float",
    "int32": "int",
    "int64": "long",
    "time64[us]": "time",
    "timestamp[us, tz=UTC]": "timestamptz",
    "timestamp[us]": "timestamp",
}
_ARROW_TYPE: Final = re.compile(
    r"(?<= is )(.+?)(?= and (?:was compared with|cannot hold) )|(?<= of type )(\S.*)$"
)
_DECIMAL: Final = re.compile(r"decimal128\((\d+), (\d+)\)")
# What the library says, and what to type instead.
# Patterns are compiled when something fails, which is rare.
_WORDS: Final = (
    (
        r"Open it with lake\.table\('(.+?)'\), (?:pass exists_ok=True, )?drop",
        r"`neve describe \1` shows it; drop",
    ),
    (r"Open it with `table` and take its definition", "`neve describe` shows its definition"),
    (r"`list_tables` and `neve tables` give those there are", "`neve tables` lists them"),
    (r"`list_namespaces` gives those there are", "`neve tables` lists the tables of all"),
    (r"Give one of the (tags|numbers) in `history\(\)`", r"`neve history` shows the \1"),
    (r"Give one of those in the table's history", "`neve history` shows those that are kept"),
    (r"Give one of version, timestamp and tag", "Give one of --version, --timestamp and --tag"),
    (r", an aware datetime", ""),
    (r"Open it without read_only and ask again, or let its", "`neve flush` does, or let its"),
    (r"Close that writer, or open read-only; fuser", "End it, or wait for it; fuser"),
    (
        r"Open the table with read_only=True, or keep",
        "There, commands only read; to write rows, keep",
    ),
    (r"Pass True or False", "Write true or false"),
    (r"Pass (?:a Decimal|a float|a number|an? int)\b", "Write a number, without quotes"),
    (r"Pass a str\b", "Write text in single quotes"),
    (r"Pass a UUID, or its text", "Write a uuid in single quotes"),
    (
        r"Pass a (date|time|datetime)( with[a-z]* a time zone)?, or text such as ([\dT:+-]+)",
        r"Write a \1\2 in single quotes, such as '\3'",
    ),
    (r", or an int in the column's unit", ""),
    (r"or use is_nan: NaN", "or `is nan`: NaN"),
    (r"has only is_null and not_null", "has only `is null` and `is not null`"),
    (r"Only is_null and not_null work", "Only `is null` and `is not null` work"),
    (r"Pass a value inside", "Give a value inside"),
    (
        r"Pass bytes, or their hexadecimal text such as 00ff",
        "Write bytes as hexadecimal text in single quotes, such as '00ff'",
    ),
    (r"Pass exactly (\d+) bytes", r"Compare it with \1 bytes; a uuid is text in single quotes"),
    (r"\bDecimal\('([^']*)'\)", r"\1"),
    (r"datetime\.date\(2024, 1, 31\)", '"2024-01-31"'),
    (r"datetime\.time\(22, 31, 8\)", '"22:31:08"'),
    (r"datetime\(2024, 1, 31, tzinfo=UTC\)", '"2024-01-31T00:00:00+00:00"'),
    (r"datetime\(2024, 1, 31\)", '"2024-01-31T00:00:00"'),
    (r"Give a uuid\.UUID", "Give a uuid as text"),
    (r"Give a Decimal with", "Give a decimal as text, with"),
    (r"or None for no row", "or null for no row"),
    (r"every column that `columns` names", "every column that --columns names"),
    (r"leave `columns` out", "leave --columns out"),
    (r"Pass a whole number; since=0", "Give a whole number; --since 0"),
    (r"\b(since|until)=(\d+)", r"--\1 \2"),
    (
        r"need not be written again; the next commit publishes them",
        "need not be written again; `neve iceberg` publishes them, and so does the next commit",
    ),
    (r"With read_only=True it can be read as it is", "Reading works as it is"),
    (r"expire and collect_garbage free", "`neve expire` and `neve gc --run` free"),
    (r"^`recover` ", "`neve recover` "),
    (r"\bRun verify\b", "Run `neve verify`"),
    (r"`verify` names", "`neve verify` names"),
    (
        r"(?:Open it|open the store) with the storage option (\w+=\w+)",
        r"Say --storage-option \1",
    ),
    (r"Pass credentials as storage_options", "Give credentials with --storage-option"),
    (r"^[Rr]eopen the table\b|^Open the table again$|^Open it again$", "Run the command again"),
    (r"compared with str ", "compared with the text "),
    (r"compared with (?:int|float|Decimal) ", "compared with the number "),
    (r"a key of (\d+) columns: pass", r"a key of \1 columns: give"),
    (r"A key column always has a value: pass one", "A key column always has a value: give one"),
    (r"NaN has none: pass a number", "NaN has none: give a number"),
    (r"then call iceberg_metadata\(\)", "then run `neve iceberg`"),
    (r"Compact the table, or run rebuild_indexes", "`neve compact --full` writes them again"),
    (r"; expire and collect_garbage free", "; `neve expire` and `neve gc --run` free"),
    (
        r"the kernel log, or open with read_only=True",
        "the kernel log; commands that read still work",
    ),
    (r"[Oo]r open with recovery mode", "or open it from Python with recovery mode"),
    (r"The rows are safe; publish again", "The rows are safe; `neve iceberg` publishes them"),
    (r"Use at most decimal128\((\d+), s\)", r"Use at most decimal(\1,s)"),
)


# What to type where the library has nothing to say.
_HINTS: Final = (("there is no tag ", "`neve history` shows the tags"),)


def failure_message(error: NeveError) -> str:
    """Return what was wrong and where, for the reader of a terminal."""
    text = error.what_and_where
    rule = _RULE.match(text)
    if rule is not None:
        text = rule[1] + text[rule.end() :]
        if error.next_move is not NextMove.FIX_THE_CALL:
            text += f" (rule {rule[2]})"
    return command_words(_ARROW_TYPE.sub(_type_word, text))


def failure_hint(error: NeveError) -> str | None:
    """Return what to type next."""
    if error.hint is None:
        return next((hint for known, hint in _HINTS if error.message.startswith(known)), None)
    return command_words(error.hint)


def command_words(text: str) -> str:
    """Return what the library says in words that can be typed."""
    for known, instead in _WORDS:
        text = re.sub(known, instead, text)
    return text


def _type_word(found: re.Match[str]) -> str:
    return _TYPES.get(found[0]) or _DECIMAL.sub(r"decimal(\1,\2)", found[0])
