"""The web service of the guide "Serve several workers": FastAPI under gunicorn, real processes."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import neve

GUIDE = Path(__file__).parents[2] / "docs/guides/serve-several-workers.md"
WAIT_SECONDS = 60


def written_services(folder: Path) -> str:
    """Write the programs of the guide and the table they use; return how the guide starts them."""
    text = GUIDE.read_text(encoding="utf-8")
    for name, program in re.findall(r"cat > (\w+\.py) <<'PY'\n(.*?)\nPY\n", text, re.DOTALL):
        folder.joinpath(name).write_text(program, encoding="utf-8")
    with neve.open(folder / "lake") as lake:
        lake.create_table("app.users", schema={"user": str, "visits": int}, primary_key="user")
    return text


@contextmanager
def serving(text: str, name: str, folder: Path) -> Iterator[int]:
    """Start a service as the guide does, but on any port; yield the port."""
    (options,) = re.findall(rf"^gunicorn (.*) --bind :\d+ {name}:app$", text, re.MULTILINE)
    command = [sys.executable, "-m", "gunicorn", *options.split(), "--bind", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, f"{name}:app"], cwd=folder, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                listening = re.search(r"Listening at: http://127\.0\.0\.1:(\d+)", line)
                if listening is not None:
                    break
            else:
                raise AssertionError(f"{name} ended with {process.wait()}")
            yield int(listening[1])
        finally:
            process.terminate()
            process.communicate(timeout=WAIT_SECONDS)


def asked(port: int, method: str, path: str) -> tuple[int, object]:
    """Ask once, over a connection of its own, which any worker may take."""
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_every_worker_reads_what_was_written_before_it_was_asked(tmp_path: Path) -> None:
    text = written_services(tmp_path)
    with serving(text, "writer", tmp_path) as writer, serving(text, "reader", tmp_path) as reader:
        for visits in range(1, 6):
            assert asked(writer, "PUT", f"/users/ada?visits={visits}") == (200, None)
            row = {"user": "ada", "visits": visits}
            assert [asked(reader, "GET", "/users/ada") for _ in range(8)] == [(200, row)] * 8
        assert asked(reader, "GET", "/users/bo") == (404, {"detail": "Not Found"})

    with neve.open(tmp_path / "lake", read_only=True) as lake:
        found = lake.table("app.users")
        assert found.scan().to_pylist() == [{"user": "ada", "visits": 5}]
        assert found.stats().memtable_rows == 0
