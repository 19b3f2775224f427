"""Azurite, the emulator of Azure, as a child process, where it is installed.

`make interop` installs it with npm into `.venv-interop`, and names the command `azurite-blob` in
NEVE_AZURITE; without npm its tests are skipped, and say so.

There is none for Google yet: fake-gcs-server 1.5 answers "invalid uploadType" to the writes of the
XML API, which is what the client uses.
"""

import base64
import hashlib
import hmac
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

# Published with Azurite: everybody's key for its one account.
AZURITE_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_ACCOUNT: Final = "devstoreaccount1"
_START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """An empty bucket on an emulator."""

    location: str
    storage_options: dict[str, str]


@contextmanager
def azurite() -> Iterator[Emulated]:
    """Run Azurite with one empty container."""
    with _running() as port:
        endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
        _until_ready(lambda: _make_container(endpoint))
        yield Emulated(
            location="az://neve",
            storage_options={
                "account_name": _ACCOUNT,
                "account_key": AZURITE_KEY,
                "endpoint": endpoint,
                "allow_http": "true",
            },
        )


@contextmanager
def _running() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="neve-azurite-") as place:
        options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", place]
        process = subprocess.Popen(
            [os.environ["NEVE_AZURITE"], *options, "--blobPort", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield port
        finally:
            process.terminate()
            process.wait(_START_SECONDS)


def _until_ready(ask: Callable[[], None]) -> None:
    ends_at = time.monotonic() + _START_SECONDS
    while True:
        try:
            ask()
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.1)
        else:
            return


def _make_container(endpoint: str) -> None:
    """Create the container, which obstore cannot."""
    now, version = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "2021-08-06"
    signed = "\n".join(
        [
            *("PUT", *[""] * 11),
            f"x-ms-date:{now}",
            f"x-ms-version:{version}",
            f"/{_ACCOUNT}/{_ACCOUNT}/neve",
            "restype:container",
        ]
    )
    key = base64.b64decode(AZURITE_KEY)
    signature = base64.b64encode(hmac.digest(key, signed.encode(), hashlib.sha256)).decode()
    headers = {
        "x-ms-date": now,
        "x-ms-version": version,
        "Authorization": f"SharedKey {_ACCOUNT}:{signature}",
        "Content-Length": "0",
        "Content-Type": "",
    }
    url = f"{endpoint}/neve?restype=container"
    request = urllib.request.Request(url, method="PUT", data=b"", headers=headers)  # noqa: S310
    urllib.request.urlopen(request).close()  # noqa: S310
