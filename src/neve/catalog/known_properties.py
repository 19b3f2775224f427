"""Table properties: texts by name, and those that neve knows.

    property                          values                       default
    format-version                    2, 3; it only rises          3
    write.format.default              parquet                      parquet
    write.parquet.compression-codec   zstd, snappy, gzip, none     zstd
    write.target-file-size-bytes      1 and up                     67108864
    neve.retention.versions           1 and up                     5
    neve.retention.milliseconds       0 and up                     86400000, a day
    neve.append                       upsert, refuse               upsert

`write.target-file-size-bytes` is for jobs, streams and bulk writes; a live writer has the option
`file_bytes`. `neve.append` says what an append of another engine does to keys that the table has
already.

Names that begin with `neve.` are reserved: an unknown one is a typo and is refused. So is
`schema.name-mapping.default`, which is derived from the schema and published with it. All other
names belong to other programs, and are kept unchanged.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from neve.errors import InvalidArgument, LimitExceeded
from neve.manifest.table_head import Retention
from neve.model.suggestions import similar_name_hint
from neve.table.table_files import FILE_BYTES_PROPERTY

FORMAT_VERSION: Final = "format-version"
FILE_FORMAT: Final = "write.format.default"
COMPRESSION_CODEC: Final = "write.parquet.compression-codec"
RETENTION_VERSIONS: Final = "neve.retention.versions"
RETENTION_MILLISECONDS: Final = "neve.retention.milliseconds"

APPEND: Final = "neve.append"

PROPERTIES_BYTES_MAX: Final = 256 << 10

_OWN_PREFIX: Final = "neve."
_NAME_MAPPING: Final = "schema.name-mapping.default"
_DEFAULT_FORMAT_VERSION: Final = "3"
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    FORMAT_VERSION: ("2", _DEFAULT_FORMAT_VERSION),
    FILE_FORMAT: ("parquet",),
    COMPRESSION_CODEC: ("zstd", "snappy", "gzip", "none"),
    APPEND: ("upsert", "refuse"),
}
_COUNTS: Final[dict[str, int]] = {
    RETENTION_VERSIONS: 1,
    RETENTION_MILLISECONDS: 0,
    FILE_BYTES_PROPERTY: 1,
}
"""Smallest value of properties that are whole numbers."""
_COUNT_DIGITS_MAX: Final = 15
_OWN: Final = (RETENTION_VERSIONS, RETENTION_MILLISECONDS, APPEND)
KNOWN_PROPERTIES: Final = (*_CHOICES, *_COUNTS)
"""Names that mean something to neve."""


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of a table's properties; raises InvalidArgument, LimitExceeded."""
    checked = check_texts(properties)
    for name, value in checked.items():
        if name in _CHOICES:
            # Iceberg reads the name of a file format in any case.
            known = value.lower() if name == FILE_FORMAT else value
            if known not in _CHOICES[name]:
                raise _unfit(name, value, _choice_hint(name))
        elif name in _COUNTS:
            _parse_count(name, value)
        elif name == _NAME_MAPPING:
            raise InvalidArgument(
                f"the property {name!a} cannot be set: it is derived from the schema",
                hint="Leave it out; other engines find it in the published metadata",
            )
        elif name.startswith(_OWN_PREFIX):
            raise InvalidArgument(
                f"neve has no property {name!a}",
                hint=similar_name_hint(name, _OWN) or f"It has {', '.join(_OWN)}",
            )
    return checked


def check_texts(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of any properties; raises InvalidArgument, LimitExceeded."""
    _refuse_other_than_mapping(properties)
    total = 0
    for name, value in properties.items():
        for text in (name, value):
            if not isinstance(text, str):
                raise InvalidArgument(
                    f"property {name!a} holds {type(text).__name__}, not text",
                    hint="Write names and values as text: '3', not 3",
                )
            total += len(text)
        if not name:
            raise InvalidArgument("a property has no name", hint="Name it")
    if total > PROPERTIES_BYTES_MAX:
        raise LimitExceeded(
            "the properties are too long",
            limit=PROPERTIES_BYTES_MAX,
            actual=total,
            hint="Store large values in a separate table",
        )
    try:
        "".join(text for item in properties.items() for text in item).encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            "a property holds a half surrogate, which has no UTF-8 form", hint="Leave it out"
        ) from error
    return dict(properties)


def check_removed(removed: Iterable[str]) -> tuple[str, ...]:
    """Return the names of properties to remove, one or several; raises InvalidArgument."""
    hint = "Write ['owner']"
    if isinstance(removed, str):
        return (removed,)
    if not isinstance(removed, Iterable):
        raise InvalidArgument(
            f"properties to remove are a list of names, not {type(removed).__name__}", hint=hint
        )
    names = tuple(removed)
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgument(
                f"the name of a property is text, not {type(name).__name__}", hint=hint
            )
    return names


def changed_properties(
    before: Mapping[str, str], *, given: Mapping[str, str], removed: Iterable[str]
) -> dict[str, str]:
    """Return changed properties; raises InvalidArgument when the format would go down."""
    _refuse_other_than_mapping(given)
    gone = set(check_removed(removed))
    both = sorted(gone & given.keys())
    if both:
        raise InvalidArgument(
            f"property {both[0]!a} is both set and removed", hint="Do one of the two"
        )
    kept = {name: value for name, value in before.items() if name not in gone}
    # Values that stay were accepted before, perhaps by an older neve.
    after = check_texts({**kept, **check_properties(given)})
    if format_version_of(after) < format_version_of(before):
        raise InvalidArgument(
            f"the format version cannot go back from {format_version_of(before)} to "
            f"{format_version_of(after)}",
            hint="Copy the rows into a new table: files of the newer format may be in use",
        )
    return after


def format_version_of(properties: Mapping[str, str]) -> int:
    """Iceberg's format version of a table with these properties."""
    return int(properties.get(FORMAT_VERSION, _DEFAULT_FORMAT_VERSION))


def retention_of(properties: Mapping[str, str]) -> Retention:
    """How much history a table with these properties keeps."""
    default = Retention()
    versions = properties.get(RETENTION_VERSIONS, str(default.versions))
    milliseconds = properties.get(RETENTION_MILLISECONDS, str(default.milliseconds))
    return Retention(
        versions=_parse_count(RETENTION_VERSIONS, versions),
        milliseconds=_parse_count(RETENTION_MILLISECONDS, milliseconds),
    )


def with_retention(properties: Mapping[str, str], retention: Retention) -> Mapping[str, str]:
    """Return properties with a retention; values that already match stay unchanged."""
    stated = retention_of(properties)
    corrected = dict(properties)
    if stated.versions != retention.versions:
        corrected[RETENTION_VERSIONS] = str(retention.versions)
    if stated.milliseconds != retention.milliseconds:
        corrected[RETENTION_MILLISECONDS] = str(retention.milliseconds)
    return corrected


def _parse_count(name: str, value: str) -> int:
    fits = value.isascii() and value.isdecimal() and len(value) <= _COUNT_DIGITS_MAX
    if not fits or int(value) < _COUNTS[name]:
        raise _unfit(name, value, f"Use an integer >= {_COUNTS[name]}")
    return int(value)


def _choice_hint(name: str) -> str:
    if name == FILE_FORMAT:
        return "Leave it out: every data file is Parquet"
    return f"Choose one of {', '.join(_CHOICES[name])}"


def _unfit(name: str, value: str, hint: str) -> InvalidArgument:
    return InvalidArgument(f"property {name!a} cannot be {value[:40]!a}", hint=hint)


def _refuse_other_than_mapping(properties: object) -> None:
    if not isinstance(properties, Mapping):
        raise InvalidArgument(
            f"properties are a dict of texts, not {type(properties).__name__}",
            hint="Write {'owner': 'anna'}",
        )
