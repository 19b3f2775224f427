"""Puffin files, which hold deletion vectors: writing and reading their bytes.

    ┌──────┬────────┬─────┬────────┬────────┐
    │ PFA1 │ blob 1 │  …  │ blob n │ footer │
    └──────┴────────┴─────┴────────┴────────┘

    footer
    ┌──────┬──────────────┬──────────┬──────────┬──────┐
    │ PFA1 │ payload JSON │ size i32 │ flags u32│ PFA1 │  little-endian; size of the payload
    └──────┴──────────────┴──────────┴──────────┴──────┘

The payload lists the blobs, each with type, field ids, offset, length and properties. A vector has
the field id of Iceberg's row position, the properties `referenced-data-file` and `cardinality`, and
-1 as `snapshot-id` and `sequence-number`; nothing is compressed.

SSTABLE-19  A payload is at most 8 MiB of JSON, flags are 0: neve reads no compressed footer.
SSTABLE-20  Blobs lie between the first magic and the footer, and do not overlap.
SSTABLE-21  The footer has no checksum: neve reads rows by the place and cardinality in the
    manifest, and the footer is for other readers and for users.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from pyroaring import BitMap64

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.model.schema_json import Json
from neve.sstable.deletion_vector import VECTOR_BYTES_MAX, decode_vector, encode_vector

ReadAt = Callable[[int, int], bytes]
"""Takes an offset and a length, and returns up to that many bytes."""

MAGIC: Final = b"PFA1"  # on disk: never change
VECTOR_TYPE: Final = "deletion-vector-v1"  # on disk: never change
_REFERENCED: Final = "referenced-data-file"  # on disk: never change
_CARDINALITY: Final = "cardinality"  # on disk: never change
_CREATED_BY: Final = "created-by"  # on disk: never change
_ROW_POSITION_ID: Final = 2_147_483_645  # on disk: never change
_INHERITED: Final = -1

_TAIL: Final = struct.Struct("<iI4s")  # on disk: never change
_BYTES_MIN: Final = 2 * len(MAGIC) + _TAIL.size
_I64_MAX: Final = (1 << 63) - 1
_CARDINALITY_DIGITS_MAX: Final = 19

# A parsed payload takes up to 24 times its bytes, so this bounds what a hostile one can cost.
FOOTER_BYTES_MAX: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobPlace:
    """The place of one data file's vector in a Puffin file, and how many rows it marks."""

    offset: int
    length: int
    cardinality: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PuffinBlob:
    """What a footer says about one blob."""

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int
    length: int
    compression_codec: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_vector(self) -> bool:
        """Whether it is a deletion vector; other blobs hold statistics."""
        return self.type == VECTOR_TYPE

    @property
    def referenced_data_file(self) -> str | None:
        """Location of the data file whose rows a vector marks."""
        return self.properties.get(_REFERENCED)

    @property
    def cardinality(self) -> int | None:
        """Number of rows that a vector marks; None when it is missing or not a number."""
        digits = self.properties.get(_CARDINALITY, "")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= _CARDINALITY_DIGITS_MAX
        return int(digits) if is_number else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PuffinFooter:
    """Everything that a footer says; blobs in the order in which it lists them."""

    blobs: tuple[PuffinBlob, ...]
    properties: Mapping[str, str] = field(default_factory=dict)


def write_puffin(
    vectors: Mapping[str, BitMap64], *, created_by: str
) -> tuple[bytes, dict[str, BlobPlace]]:
    """Return the bytes of a Puffin file and the place of each data file's vector in it.

    `vectors` has the location of each data file, as Iceberg's metadata spells it. Equal vectors
    have equal bytes.
    """
    pieces = [MAGIC]
    offset = len(MAGIC)
    blobs: list[PuffinBlob] = []
    places: dict[str, BlobPlace] = {}
    for data_file in sorted(vectors):
        positions = vectors[data_file]
        if not positions:
            raise InvalidArgument(
                f"the deletion vector of {data_file} marks no row",
                hint="Leave out files whose rows are all live",
            )
        blob = encode_vector(positions)
        place = BlobPlace(offset=offset, length=len(blob), cardinality=len(positions))
        pieces.append(blob)
        offset += len(blob)
        places[data_file] = place
        blobs.append(_vector_blob(data_file, place))
    footer = PuffinFooter(blobs=tuple(blobs), properties={_CREATED_BY: created_by})
    pieces.append(encode_footer(footer))
    return b"".join(pieces), places


def encode_footer(footer: PuffinFooter) -> bytes:
    """Return the bytes of a footer, both of its magics included."""
    document: dict[str, Json] = {"blobs": [_blob_json(blob) for blob in footer.blobs]}
    if footer.properties:
        document["properties"] = dict(footer.properties)
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    try:
        payload = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"a text of a Puffin footer cannot be stored: {error.reason}",
            hint="Leave out half surrogates",
        ) from error
    if len(payload) > FOOTER_BYTES_MAX:
        raise LimitExceeded(
            f"a Puffin footer of {len(payload):,} bytes is too large",
            limit=FOOTER_BYTES_MAX,
            actual=len(payload),
            hint="Write the vectors of fewer data files into one file",
        )
    return b"".join((MAGIC, payload, _TAIL.pack(len(payload), 0, MAGIC)))


def read_puffin_footer(read_at: ReadAt, byte_count: int, *, path: str) -> PuffinFooter:
    """Read the footer of a Puffin file of `byte_count` bytes; raises Corruption."""
    if byte_count < _BYTES_MIN:
        raise Corruption(f"a file of {byte_count:,} bytes is not a Puffin file", path=path)
    if read_at(0, len(MAGIC)) != MAGIC:
        raise Corruption("the file does not begin as a Puffin file does", path=path, offset=0)
    tail_at = byte_count - _TAIL.size
    tail = read_at(tail_at, _TAIL.size)
    if len(tail) != _TAIL.size or not tail.endswith(MAGIC):
        raise Corruption("the file does not end as a Puffin file does", path=path, offset=tail_at)
    payload_bytes, flags, _ = _TAIL.unpack(tail)
    if flags:
        raise Corruption(
            f"the Puffin footer has flags {flags:#x}, which neve does not know",
            path=path,
            offset=tail_at,
            hint="Write the footer without compression",
        )
    if not 0 <= payload_bytes <= byte_count - _BYTES_MIN:
        raise Corruption(
            f"a Puffin footer of {payload_bytes:,} bytes does not fit", path=path, offset=tail_at
        )
    if payload_bytes > FOOTER_BYTES_MAX:
        raise LimitExceeded(
            f"a Puffin footer of {payload_bytes:,} bytes is too large",
            limit=FOOTER_BYTES_MAX,
            actual=payload_bytes,
            path=path,
        )
    footer_at = tail_at - payload_bytes - len(MAGIC)
    footer = read_at(footer_at, len(MAGIC) + payload_bytes)
    if len(footer) != len(MAGIC) + payload_bytes or not footer.startswith(MAGIC):
        raise Corruption("the Puffin footer has no beginning", path=path, offset=footer_at)
    return _FooterReader(path, footer_at).read(footer[len(MAGIC) :])


def read_puffin_vector(read_at: ReadAt, blob: PuffinBlob, *, path: str) -> BitMap64:
    """Read a vector by what the footer says about it; raises Corruption."""
    if not blob.is_vector or blob.compression_codec is not None:
        raise Corruption(
            f"a blob of type {blob.type!a}, compression {blob.compression_codec!a}, is not a "
            "deletion vector",
            path=path,
            offset=blob.offset,
        )
    if blob.length > VECTOR_BYTES_MAX:
        raise LimitExceeded(
            f"a deletion vector of {blob.length:,} bytes is too large",
            limit=VECTOR_BYTES_MAX,
            actual=blob.length,
            path=path,
            offset=blob.offset,
        )
    positions = decode_vector(read_at(blob.offset, blob.length), path=path, offset=blob.offset)
    if len(positions) != blob.cardinality:
        said = "nothing" if blob.cardinality is None else f"{blob.cardinality:,}"
        raise Corruption(
            f"the deletion vector marks {len(positions):,} rows, and the footer says {said}",
            path=path,
            offset=blob.offset,
        )
    return positions


def _vector_blob(data_file: str, place: BlobPlace) -> PuffinBlob:
    return PuffinBlob(
        type=VECTOR_TYPE,
        fields=(_ROW_POSITION_ID,),
        snapshot_id=_INHERITED,
        sequence_number=_INHERITED,
        offset=place.offset,
        length=place.length,
        properties={_REFERENCED: data_file, _CARDINALITY: str(place.cardinality)},
    )


def _blob_json(blob: PuffinBlob) -> dict[str, Json]:
    members: dict[str, Json] = {
        "type": blob.type,
        "fields": list(blob.fields),
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": blob.offset,
        "length": blob.length,
    }
    if blob.compression_codec is not None:
        members["compression-codec"] = blob.compression_codec
    if blob.properties:
        members["properties"] = dict(blob.properties)
    return members


class _FooterReader:
    """Turns a payload into values; anything that does not fit is Corruption."""

    def __init__(self, path: str, footer_at: int) -> None:
        self._path = path
        self._footer_at = footer_at

    def read(self, payload: bytes) -> PuffinFooter:
        try:
            document: Json = json.loads(payload.decode())
        except (ValueError, RecursionError) as error:
            self._refuse(f"it cannot be read: {error}", error)
        if not isinstance(document, dict):
            self._refuse("it is not an object")
        listed = document.get("blobs")
        if not isinstance(listed, list):
            self._refuse("it has no list of blobs")
        blobs = tuple(self._blobs(listed))
        self._check_places(blobs)
        return PuffinFooter(blobs=blobs, properties=self._texts(document.get("properties")))

    def _blobs(self, listed: list[Json]) -> Iterator[PuffinBlob]:
        for members in listed:
            if not isinstance(members, dict):
                self._refuse("a blob is not an object")
            fields = members.get("fields")
            if not isinstance(fields, list):
                self._refuse("the fields of a blob are not a list")
            codec = members.get("compression-codec")
            yield PuffinBlob(
                type=self._text(members.get("type")),
                fields=tuple(map(self._number, fields)),
                snapshot_id=self._number(members.get("snapshot-id")),
                sequence_number=self._number(members.get("sequence-number")),
                offset=self._number(members.get("offset")),
                length=self._number(members.get("length")),
                compression_codec=None if codec is None else self._text(codec),
                properties=self._texts(members.get("properties")),
            )

    def _check_places(self, blobs: tuple[PuffinBlob, ...]) -> None:
        end = len(MAGIC)
        for blob in sorted(blobs, key=lambda blob: (blob.offset, blob.length)):
            if blob.offset < end or blob.length < 0 or blob.offset + blob.length > self._footer_at:
                self._refuse(f"a blob cannot have {blob.length:,} bytes at byte {blob.offset:,}")
            end = blob.offset + blob.length

    def _number(self, value: Json) -> int:
        # A bool is an int in Python, but not in JSON.
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _I64_MAX:
            self._refuse(f"{_shown(value)} is not a number")
        return value

    def _text(self, value: Json) -> str:
        if not isinstance(value, str):
            self._refuse(f"{_shown(value)} is not text")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            self._refuse("a text holds half a surrogate", error)
        return value

    def _texts(self, value: Json) -> dict[str, str]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._refuse(f"{_shown(value)} is not an object of properties")
        return {self._text(name): self._text(text) for name, text in value.items()}

    def _refuse(self, problem: str, cause: Exception | None = None) -> NoReturn:
        raise Corruption(
            f"the Puffin footer is damaged: {problem}", path=self._path, offset=self._footer_at
        ) from cause


def _shown(value: Json) -> str:
    """Quote a hostile value so that it stays on one short line of ASCII."""
    limit = 40
    text = ascii(value) if not isinstance(value, list | dict) else type(value).__name__
    return text if len(text) <= limit else f"{text[:limit]}…"
