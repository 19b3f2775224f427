from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Form(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORM_UNSPECIFIED: _ClassVar[Form]
    FORM_STATE: _ClassVar[Form]
    FORM_EDIT: _ClassVar[Form]
FORM_UNSPECIFIED: Form
FORM_STATE: Form
FORM_EDIT: Form

class DataFileRef(_message.Message):
    __slots__ = ("path", "file_size", "num_rows", "level", "seq_min", "seq_max", "key_min", "key_max", "dv_path", "dv_offset", "dv_length", "status", "format", "first_row_id", "footer_crc", "spec_id", "partition", "schema_id", "statistics", "dv_cardinality", "commit_ms_min", "commit_ms_max", "wal_segments", "data_sequence")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FILE_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_ROWS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SEQ_MIN_FIELD_NUMBER: _ClassVar[int]
    SEQ_MAX_FIELD_NUMBER: _ClassVar[int]
    KEY_MIN_FIELD_NUMBER: _ClassVar[int]
    KEY_MAX_FIELD_NUMBER: _ClassVar[int]
    DV_PATH_FIELD_NUMBER: _ClassVar[int]
    DV_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DV_LENGTH_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_ID_FIELD_NUMBER: _ClassVar[int]
    FOOTER_CRC_FIELD_NUMBER: _ClassVar[int]
    SPEC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    DV_CARDINALITY_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_MIN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    WAL_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    DATA_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    path: str
    file_size: int
    num_rows: int
    level: int
    seq_min: int
    seq_max: int
    key_min: bytes
    key_max: bytes
    dv_path: str
    dv_offset: int
    dv_length: int
    status: int
    format: int
    first_row_id: int
    footer_crc: int
    spec_id: int
    partition: _containers.RepeatedCompositeFieldContainer[PartitionValue]
    schema_id: int
    statistics: _containers.RepeatedCompositeFieldContainer[ColumnStatistics]
    dv_cardinality: int
    commit_ms_min: int
    commit_ms_max: int
    wal_segments: _containers.RepeatedCompositeFieldContainer[WalSegmentRef]
    data_sequence: int
    def __init__(self, path: _Optional[str] = ..., file_size: _Optional[int] = ..., num_rows: _Optional[int] = ..., level: _Optional[int] = ..., seq_min: _Optional[int] = ..., seq_max: _Optional[int] = ..., key_min: _Optional[bytes] = ..., key_max: _Optional[bytes] = ..., dv_path: _Optional[str] = ..., dv_offset: _Optional[int] = ..., dv_length: _Optional[int] = ..., status: _Optional[int] = ..., format: _Optional[int] = ..., first_row_id: _Optional[int] = ..., footer_crc: _Optional[int] = ..., spec_id: _Optional[int] = ..., partition: _Optional[_Iterable[_Union[PartitionValue, _Mapping]]] = ..., schema_id: _Optional[int] = ..., statistics: _Optional[_Iterable[_Union[ColumnStatistics, _Mapping]]] = ..., dv_cardinality: _Optional[int] = ..., commit_ms_min: _Optional[int] = ..., commit_ms_max: _Optional[int] = ..., wal_segments: _Optional[_Iterable[_Union[WalSegmentRef, _Mapping]]] = ..., data_sequence: _Optional[int] = ...) -> None: ...

class PartitionValue(_message.Message):
    __slots__ = ("field_id", "value")
    FIELD_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    field_id: int
    value: bytes
    def __init__(self, field_id: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class ColumnStatistics(_message.Message):
    __slots__ = ("field_id", "compressed_bytes", "value_count", "null_count", "nan_count", "lower", "upper")
    FIELD_ID_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_BYTES_FIELD_NUMBER: _ClassVar[int]
    VALUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    NULL_COUNT_FIELD_NUMBER: _ClassVar[int]
    NAN_COUNT_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    field_id: int
    compressed_bytes: int
    value_count: int
    null_count: int
    nan_count: int
    lower: bytes
    upper: bytes
    def __init__(self, field_id: _Optional[int] = ..., compressed_bytes: _Optional[int] = ..., value_count: _Optional[int] = ..., null_count: _Optional[int] = ..., nan_count: _Optional[int] = ..., lower: _Optional[bytes] = ..., upper: _Optional[bytes] = ...) -> None: ...

class WalSegmentRef(_message.Message):
    __slots__ = ("seq", "file_id", "first_frame", "last_frame")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    FILE_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FRAME_FIELD_NUMBER: _ClassVar[int]
    LAST_FRAME_FIELD_NUMBER: _ClassVar[int]
    seq: int
    file_id: str
    first_frame: int
    last_frame: int
    def __init__(self, seq: _Optional[int] = ..., file_id: _Optional[str] = ..., first_frame: _Optional[int] = ..., last_frame: _Optional[int] = ...) -> None: ...

class DeleteFileRef(_message.Message):
    __slots__ = ("path", "file_size", "content")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FILE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    path: str
    file_size: int
    content: int
    def __init__(self, path: _Optional[str] = ..., file_size: _Optional[int] = ..., content: _Optional[int] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("snapshot_id", "sequence_number", "schema_id", "partition_spec_id", "data_files", "delete_files", "previous_snapshot_id", "table_uuid", "last_updated_ms", "properties", "last_column_id", "next_row_id", "first_row_id", "form", "operation", "wal_segments")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_SPEC_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FILES_FIELD_NUMBER: _ClassVar[int]
    DELETE_FILES_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SNAPSHOT_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_UUID_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATED_MS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    LAST_COLUMN_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_ROW_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_ID_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    WAL_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    snapshot_id: int
    sequence_number: int
    schema_id: int
    partition_spec_id: int
    data_files: _containers.RepeatedCompositeFieldContainer[DataFileRef]
    delete_files: _containers.RepeatedCompositeFieldContainer[DeleteFileRef]
    previous_snapshot_id: int
    table_uuid: str
    last_updated_ms: int
    properties: _containers.ScalarMap[str, str]
    last_column_id: int
    next_row_id: int
    first_row_id: int
    form: Form
    operation: str
    wal_segments: _containers.RepeatedCompositeFieldContainer[WalSegmentRef]
    def __init__(self, snapshot_id: _Optional[int] = ..., sequence_number: _Optional[int] = ..., schema_id: _Optional[int] = ..., partition_spec_id: _Optional[int] = ..., data_files: _Optional[_Iterable[_Union[DataFileRef, _Mapping]]] = ..., delete_files: _Optional[_Iterable[_Union[DeleteFileRef, _Mapping]]] = ..., previous_snapshot_id: _Optional[int] = ..., table_uuid: _Optional[str] = ..., last_updated_ms: _Optional[int] = ..., properties: _Optional[_Mapping[str, str]] = ..., last_column_id: _Optional[int] = ..., next_row_id: _Optional[int] = ..., first_row_id: _Optional[int] = ..., form: _Optional[_Union[Form, str]] = ..., operation: _Optional[str] = ..., wal_segments: _Optional[_Iterable[_Union[WalSegmentRef, _Mapping]]] = ...) -> None: ...
