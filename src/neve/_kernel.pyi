# Types of the compiled kernel; `_kernel.c` says what each part does.

from collections.abc import Callable
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt
from pyarrow import Buffer

REVISION: int

def crc32c_extend(seed: int, data: bytes, by_table: bool = False, /) -> int: ...
def gather(
    width: int,
    parts: list[
        tuple[
            npt.NDArray[Any],
            npt.NDArray[np.uint8] | None,
            npt.NDArray[np.uint8] | None,
            int,
            npt.NDArray[np.int64],
        ]
    ],
    targets: npt.NDArray[np.int64],
    /,
) -> tuple[bytes, bytes | None, bytes | None] | None: ...
def keyed_row(
    encode: Callable[..., bytes],
    encode_key: Callable[[object], bytes],
    name: str,
    fallback: Callable[..., tuple[bytes, bytes]],
    row: object,
    /,
) -> tuple[bytes, bytes]: ...
def put_record(
    row: tuple[bytes, bytes, int],
    sequence: int,
    durable_through: int,
    nonce: int,
    seed: int,
    log_number: int,
    room: int,
    /,
) -> bytes | None: ...
def read_puts(
    block: bytes,
    position: int,
    expected: int,
    limit: int,
    log_number: int,
    nonce: int,
    seed: int,
    /,
) -> tuple[list[bytes], list[bytes], int, int, int, int]: ...

class SupportsContains(Protocol):
    def __contains__(self, position: int, /) -> bool: ...

@final
class RowWriter:
    def __new__(
        cls,
        header: bytes,
        bitmap_bytes: int,
        bytes_max: int,
        columns: list[tuple[str, type, str, int, int, Callable[..., object] | None]],
        fallback: Callable[..., bytes],
        caught: tuple[type[Exception], ...],
        /,
    ) -> RowWriter: ...
    def write(self, row: object, /) -> bytes: ...

@final
class RowReader:
    def __new__(
        cls,
        header: bytes,
        bitmap_bytes: int,
        columns: list[tuple[str, str, int, bool, Callable[..., object] | None]],
        fallback: Callable[[bytes], dict[str, object]],
        caught: tuple[type[Exception], ...],
        /,
    ) -> RowReader: ...
    def read(self, value: bytes, /) -> dict[str, object]: ...

@final
class BatchRows:
    def __new__(
        cls,
        row_count: int,
        columns: list[
            tuple[
                str,
                str,
                int,
                int,
                Callable[..., object] | None,
                Buffer | None,
                Buffer | None,
                Buffer | None,
            ]
        ],
        fallback: Callable[[int], dict[str, object]],
        caught: tuple[type[Exception], ...],
        /,
    ) -> BatchRows: ...
    def row(self, i: int, /) -> dict[str, object]: ...
    def counted_row(self, i: int, /) -> dict[str, object]: ...
    def reads(self) -> int: ...

@final
class FileRows:
    def __new__(
        cls,
        words: npt.NDArray[np.uint64],
        group_rows: int,
        getters: dict[int, Callable[[int], dict[str, object]]],
        marked: SupportsContains | None,
        fallback: Callable[[int], dict[str, object]],
        /,
    ) -> FileRows: ...
    def find_row(self, key: bytes, word: int, /) -> dict[str, object] | None: ...

@final
class IntegerKey:
    def __new__(cls, width: int, fallback: Callable[[object], bytes], /) -> IntegerKey: ...
    def encode(self, value: object, /) -> bytes: ...
