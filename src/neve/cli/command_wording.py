"""Error messages and hints in the words of the command line.

The library words them for Python callers: a phrase such as `OPEN_AGAIN` names values and calls.
This module words the same facts as something to type. The library puts the code of a rule (WAL-4,
MANIFEST-V1) before the message; here it comes last, or is dropped where a hint says what to do.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from neve.errors import NeveError, NextMove, Phrase, Wording

_RULE: Final = re.compile(r"^((?:.*: )?)([A-Z]+-[A-Z]?[0-9]{1,2}): ", re.DOTALL)
_DECIMAL: Final = re.compile(r"\bDecimal\('([^']*)'\)")
_KINDS: Final = dict.fromkeys(("int", "float", "Decimal"), "the number") | {"str": "the text"}
_NUMBER: Final = "Write a number, without quotes"
_LITERALS: Final = {
    "boolean": "Write true or false",
    "int": _NUMBER,
    "long": _NUMBER,
    "float": _NUMBER,
    "double": _NUMBER,
    "decimal": _NUMBER,
    "date": "Write a date in single quotes, such as '2024-01-31'",
    "time": "Write a time without a time zone in single quotes, such as '12:30:00'",
    "timestamp": "Write a datetime without a time zone in single quotes, such as "
    "'2024-01-31T12:00:00'",
    "timestamptz": "Write a datetime with a time zone in single quotes, such as "
    "'2024-01-31T12:00:00+00:00'",
    "string": "Write text in single quotes",
    "uuid": "Write a uuid in single quotes",
    "binary": "Write bytes as hexadecimal text in single quotes, such as '00ff'",
    "fixed": "Write as many bytes as it has, as hexadecimal text in single quotes",
}


def _compared(facts: Mapping[str, Any]) -> str:
    kind = _KINDS.get(facts["kind"], facts["kind"])
    return f"column {facts['column']} is {facts['type']} and was compared with {kind} " + _plain(
        facts["value"]
    )


def _literal(facts: Mapping[str, Any]) -> str:
    kind = re.split(r"[(\[]", facts["type"])[0]
    return _LITERALS.get(kind, f"Write {facts['wanted']}")


_WORDS: Final[Mapping[Phrase, str | Callable[[Mapping[str, Any]], str]]] = {
    Phrase.TABLE_IS_THERE: "`neve describe {name}` shows it; drop it, or choose another name",
    Phrase.TAKE_ITS_DEFINITION: "`neve describe` shows its definition, or choose another name",
    Phrase.LIST_TABLES: "`neve tables` lists them",
    Phrase.LIST_NAMESPACES: "`neve tables` lists the tables of all",
    Phrase.NAME_A_TAG: "`neve history` shows the tags",
    Phrase.NAME_A_VERSION: "`neve history` shows the numbers",
    Phrase.NAME_A_KEPT_VERSION: "`neve history` shows those that are kept",
    Phrase.NAME_ONE_VERSION: "Use one of --version, --timestamp and --tag",
    Phrase.NAME_A_TIME: "Write '2024-01-31T12:00:00+00:00', an age such as '2h ago', or "
    "milliseconds since 1970",
    Phrase.NOT_A_VERSION: "--{name} {number} is not the number of a version",
    Phrase.NAME_A_NUMBER: "Write a whole number; --since 0 starts at the beginning",
    Phrase.UNTIL_BEFORE_SINCE: "--until {until} is before --since {since}",
    Phrase.CHANGES_KEPT_SINCE: "Changes are kept from --since {oldest} on; to start again, scan "
    "version {oldest} and go on from there",
    Phrase.RESTART_CONSUMER: "Remove the consumer with `neve consumers TABLE --drop {name}`, or "
    "use --since {oldest} or later to start it again there",
    Phrase.LIST_CONSUMERS: "`neve consumers` lists them",
    Phrase.OPEN_AGAIN: "Run the command again",
    Phrase.CLOSE_THAT_WRITER: "End it, or wait for it; fuser {file} shows which process it is",
    Phrase.ROOM_FOR_A_WRITER: "A writer needs 256 KiB to start: free as much outside of the table, "
    "then `neve expire` and `neve gc --run` free what the table does not need. Reading works as it "
    "is",
    Phrase.FREE_SPACE: "Free space or raise the quota of the disk, then try again; `neve expire` "
    "and `neve gc --run` free what the table does not need",
    Phrase.MOUNTED_READ_ONLY: "The file system is mounted read-only: look at the kernel log; "
    "commands that read still work",
    Phrase.UNORDERED_LISTING: "Use --storage-option listing=unordered",
    Phrase.CREDENTIALS: "Set credentials with --storage-option",
    Phrase.PUBLISH_FIRST: "`neve flush` publishes it, or let its writer flush",
    Phrase.NEXT_COMMIT_PUBLISHES: "Its rows are safe and need not be written again; `neve iceberg` "
    "publishes them, and so does the next commit",
    Phrase.PUBLISH_AGAIN: "The rows are safe; `neve iceberg` publishes them",
    Phrase.REPUBLISH: "Rows are not affected. Publish the table again: delete the folder "
    "`metadata` of the table, then run `neve iceberg`",
    Phrase.RECOVER: "`neve recover` removes what is left",
    Phrase.FIND_DAMAGE: "Run `neve verify` to see which file or vector is damaged",
    Phrase.WRITE_AGAIN: "Run `neve verify`, and write the row of this key again: one of the two "
    "is stale",
    Phrase.RESTORE_LOST_FILE: "Restore it from a copy, or roll back to a version without it; "
    "`neve verify` names all that are missing",
    Phrase.REBUILD_INDEXES: "Rows are not affected. `neve compact --full` writes them again",
    Phrase.SALVAGE_LOG: "restore {what} from a copy, or open it from Python with recovery mode "
    "{mode}",
    Phrase.WAS_COMPARED: _compared,
    Phrase.WRITE_A_LITERAL: _literal,
    Phrase.CANNOT_HOLD: "column {column} is {type} and cannot hold {value}",
    Phrase.CANNOT_BE_ASKED: "{operator!r} cannot be asked of column {column} of type {type}",
    Phrase.CANNOT_BE_APPLIED: "{transform} cannot be applied to column {column} of type {type}",
    Phrase.ONLY_NULL_TESTS: "Use `is null` or `is not null`: nested columns support nothing else",
    Phrase.USE_A_PRIMITIVE: "Use a column of a primitive type: a nested one has only `is null` and "
    "`is not null`",
    Phrase.GIVE_A_DATE: 'Write a date, such as "2024-01-31"',
    Phrase.GIVE_A_TIME: 'Write a time, such as "22:31:08"',
    Phrase.GIVE_A_TIMESTAMP: 'Write a datetime without a zone, such as "2024-01-31T00:00:00"',
    Phrase.GIVE_A_TIMESTAMPTZ: 'Write a datetime with a zone, such as "2024-01-31T00:00:00+00:00"',
    Phrase.GIVE_A_UUID: "Write a uuid as text",
    Phrase.GIVE_A_DECIMAL: "Write a decimal as text, with at most {digits}",
    Phrase.SMALLER_DECIMAL: "Use at most decimal({digits},s), or string",
    Phrase.EXPECTED_ROW: "Write the row of the same key as it was read, or null for no row",
    Phrase.NAMED_COLUMNS: "Include the key and every column that --columns names",
    Phrase.COUNT_BATCHES_UP: "Numbers of batches go up: go on after batch {last}. To start over, "
    "use another --app-id",
    Phrase.ORDER_OF_TABLE: "Leave --order-by out, or change the table's with `neve evolve`",
    Phrase.LEAVE_COLUMNS_OUT: "Name the columns to write, or leave --columns out to write whole "
    "rows",
}


def failure_message(error: NeveError) -> str:
    """Return what went wrong and where, for a terminal."""
    text = f"{command_words(error.message)}{error.where}"
    rule = _RULE.match(text)
    if rule is not None:
        text = rule[1] + text[rule.end() :]
        if error.next_move is not NextMove.FIX_THE_CALL:
            text += f" (rule {rule[2]})"
    return text


def failure_hint(error: NeveError) -> str | None:
    """Return what to type next."""
    return None if error.hint is None else command_words(error.hint)


def failure_text(error: NeveError) -> str:
    """Return message and hint of an error on one line."""
    said, hint = failure_message(error), failure_hint(error)
    if not hint:
        return said
    return f"{said}{';' if hint[0].islower() else '.'} {hint}"


def command_words(text: str) -> str:
    """Return a text of the library in words that can be typed."""
    if not isinstance(text, Wording):
        return _plain(text)
    words = _WORDS[text.phrase]
    return _plain(words.format(**text.facts) if isinstance(words, str) else words(text.facts))


def _plain(text: str) -> str:
    """Return the text with Python's decimals written as plain numbers."""
    return _DECIMAL.sub(r"\1", text)
