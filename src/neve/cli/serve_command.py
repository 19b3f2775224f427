"""`neve serve`: the lake as an Iceberg REST catalog, until the process is asked to stop.

SIGTERM ends it cleanly: requests under way are finished first. Ctrl-C does the same, and exits as
every interrupted command does.
"""

import signal
import sys
from types import FrameType
from typing import Final

import click

from neve.catalog.running_server import RunningServer
from neve.cli.commands import DocumentedCommand
from neve.cli.options import AskedLake, ByteSize, WholeNumber, on_a_lake, pairs_of
from neve.errors import InvalidArgument
from neve.inspect.page import Page, write_json
from neve.observability.prometheus import PrometheusRecorder

_PORT: Final = 8181
_CERTIFICATE_AND_KEY: Final = 2


class _Stopped(Exception):
    """SIGTERM came."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise _Stopped


@click.command(
    cls=DocumentedCommand,
    examples=["neve serve --port 8181", "neve serve --host 0.0.0.0 --tokens tokens.toml"],
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. One that other machines can reach needs --tokens.",
)
@click.option(
    "--port",
    type=WholeNumber(),
    default=_PORT,
    show_default=True,
    help="Port; 0 chooses a free one.",
)
@click.option(
    "--tokens",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Bearer tokens and their scopes, as TOML.",
)
@click.option("--certificate", metavar="FILE", help="Certificate for HTTPS, as PEM.")
@click.option("--key", metavar="FILE", help="Private key of the certificate, as PEM.")
@click.option(
    "--client-config",
    "client_config",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property that clients get with each table, such as s3.endpoint; may be repeated.",
)
@click.option(
    "--body-limit", type=ByteSize(), metavar="SIZE", show_default="16MiB", help="Largest request."
)
@on_a_lake
def serve(
    *,
    host: str,
    port: int,
    tokens: str | None,
    certificate: str | None,
    key: str | None,
    client_config: tuple[str, ...],
    body_limit: int | None,
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Serve the lake as an Iceberg REST catalog, for Spark, Trino, DuckDB, PyIceberg and others.

    `neve -v serve` writes one line for each request.
    """
    pair = [each for each in (certificate, key) if each is not None]
    if pair and len(pair) < _CERTIFICATE_AND_KEY:
        raise InvalidArgument("HTTPS needs both a certificate and its key")
    recorder = PrometheusRecorder()
    opened = lake.open(recorder=recorder)
    # From here on there is something to finish.
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        with (
            opened as found,
            found.serve(
                host,
                port,
                tokens=tokens,
                tls=(pair[0], pair[1]) if pair else None,
                client_config=pairs_of(client_config, what="property", show_value=False),
                body_bytes=body_limit,
                recorder=recorder,
            ) as server,
        ):
            _show(server, as_json=as_json)
            server.wait()
    except _Stopped:
        return
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(server: RunningServer, *, as_json: bool) -> None:
    if as_json:
        write_json({"url": server.url})
    else:
        Page().line(f"serving {server.url}; Ctrl-C or SIGTERM ends it")
    sys.stdout.flush()
