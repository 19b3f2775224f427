from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Head(_message.Message):
    __slots__ = ("epoch", "segment", "transaction", "checkpoint", "nonce")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    segment: int
    transaction: bytes
    checkpoint: int
    nonce: bytes
    def __init__(self, epoch: _Optional[int] = ..., segment: _Optional[int] = ..., transaction: _Optional[bytes] = ..., checkpoint: _Optional[int] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("epoch", "number", "transaction", "written_ms", "records", "previous")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    number: int
    transaction: bytes
    written_ms: int
    records: _containers.RepeatedCompositeFieldContainer[Record]
    previous: bytes
    def __init__(self, epoch: _Optional[int] = ..., number: _Optional[int] = ..., transaction: _Optional[bytes] = ..., written_ms: _Optional[int] = ..., records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., previous: _Optional[bytes] = ...) -> None: ...

class DecidedTransaction(_message.Message):
    __slots__ = ("segment", "transaction")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    segment: int
    transaction: bytes
    def __init__(self, segment: _Optional[int] = ..., transaction: _Optional[bytes] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("epoch", "segment", "entries", "recent")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    segment: int
    entries: _containers.RepeatedCompositeFieldContainer[Record]
    recent: _containers.RepeatedCompositeFieldContainer[DecidedTransaction]
    def __init__(self, epoch: _Optional[int] = ..., segment: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., recent: _Optional[_Iterable[_Union[DecidedTransaction, _Mapping]]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("id", "version", "expires_ms", "last_version", "holder", "taken_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_VERSION_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    TAKEN_MS_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    version: int
    expires_ms: int
    last_version: int
    holder: str
    taken_ms: int
    def __init__(self, id: _Optional[bytes] = ..., version: _Optional[int] = ..., expires_ms: _Optional[int] = ..., last_version: _Optional[int] = ..., holder: _Optional[str] = ..., taken_ms: _Optional[int] = ...) -> None: ...
