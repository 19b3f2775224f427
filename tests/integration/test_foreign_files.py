"""Files of others, odd and hostile: each ends in an answer or a typed error, in little memory.

Decoders run in real child processes here; the files are those of `foreign_files`.
"""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from neve.cli.main import cli
from neve.errors import EXIT_CODES
from neve.inspect.decoder_child import DecoderTask
from neve.inspect.decoder_process import DecoderFailed, DecoderProcess, FailureKind
from tests.gates import Gate
from tests.integration import foreign_files
from tests.integration.foreign_files import corpus, flipped, parquet
from tests.integration.measured_commands import Measured, MeasuredCommands

Record = Callable[[str], None]

TYPED = {0, *EXIT_CODES.values()}
MEMORY_KIB_MAX = 512 << 10
FORMS = {".parquet": "parquet", ".arrow": "arrow", ".arrows": "arrow"}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def inspected(content: bytes, directory: Path, *options: str) -> Result:
    path = directory / "odd.parquet"
    path.write_bytes(content)
    return run("inspect", "sst", path, *options)


@pytest.fixture
def commands() -> Iterator[MeasuredCommands]:
    with MeasuredCommands() as measured:
        yield measured


def answers(commands: MeasuredCommands, path: Path, lake: Path) -> Iterator[tuple[str, Measured]]:
    """Do everything with a file that is done with files of others."""
    run = commands.run
    if path.suffix == ".parquet":
        yield "inspect", run("inspect", "sst", path)
    made = run("create", "a.b", "--from", path, "--key", "id", "--lake", lake)
    yield "create", made
    if made.exit_code:
        run("create", "a.b", "id:long", "name:string", "--key", "id", "--lake", lake)
    if path.stem != "one-text-often":  # its rows fit: three gigabytes of them
        yield "import", run("import", "a.b", path, "--lake", lake)


def complaint(said: Measured) -> str | None:
    """Return what is wrong with how a command ended."""
    if said.exit_code not in TYPED:
        return f"exit code {said.exit_code}: {said.stderr[-600:]}"
    if said.exit_code and not said.stderr.startswith("neve: "):
        return f"no message: {said.stderr[-600:]}"
    if said.memory_kib > MEMORY_KIB_MAX:
        return f"{said.memory_kib:,} KiB of memory"
    return None


def test_every_odd_file_ends_in_an_answer_or_a_typed_error(
    tmp_path: Path, scoreboard: Record, commands: MeasuredCommands
) -> None:
    files = [*corpus()]
    Random(13).shuffle(files)
    gate = Gate("R19 odd files: untyped ends, above 512 MiB", aim=len(files), full=len(files))

    for seed in gate.seeds():
        name, content = files[seed]
        path = tmp_path / name
        path.write_bytes(content)
        for command, said in answers(commands, path, tmp_path / "lake"):
            wrong = complaint(said)
            assert wrong is None, f"{command} {name}: {wrong}"
        path.unlink()
        shutil.rmtree(tmp_path / "lake")
        gate.cases += 1

    scoreboard(gate.line())


def test_damaged_files_end_in_an_answer_or_a_typed_error(
    tmp_path: Path, scoreboard: Record, commands: MeasuredCommands
) -> None:
    gate = Gate("R19 foreign files, mutated: untyped ends, above 512 MiB", aim=200, full=2_000)
    wholes = [(f"{name}.parquet", content) for name, content in foreign_files.whole_parquet()]
    wholes = [each for each in wholes if len(each[1]) < 1 << 16]
    wholes += [
        each for each in foreign_files.arrow_files() if each[0] in {"whole.arrow", "types.arrow"}
    ]

    for seed in gate.seeds():
        rng = Random(seed)
        name, content = rng.choice(wholes)
        path = tmp_path / f"{seed}-{name}"
        path.write_bytes(flipped(content, rng))
        said = (
            commands.run("inspect", "sst", path)
            if path.suffix == ".parquet" and rng.random() < 0.5
            else commands.run(
                *("create", "a.b", "--from", path, "--key", "id", "--load"),
                *("--lake", tmp_path / "lake"),
            )
        )
        shutil.rmtree(tmp_path / "lake", ignore_errors=True)
        wrong = complaint(said)
        assert wrong is None, f"seed {seed}, {name}: {wrong}"
        path.unlink()
        gate.cases += 1

    scoreboard(gate.line())


@pytest.mark.parametrize(
    ("which", "words"),
    [("encrypted-footer", "is encrypted"), ("encrypted-columns", "are encrypted: 'name', 'price'")],
)
def test_an_encrypted_file_is_named_as_one(tmp_path: Path, which: str, words: str) -> None:
    content = dict(foreign_files.encrypted_parquet())[which]

    said = inspected(content, tmp_path)

    assert said.exit_code == 2
    assert words in said.stderr
    assert "neve has no keys" in said.stderr
    loaded = run(
        "create", "a.b", "--from", tmp_path / "odd.parquet", "--key", "id", "--lake", "memory://e"
    )
    assert loaded.exit_code == 2, loaded.stderr


def test_a_page_that_becomes_too_large_is_not_decoded_and_the_rest_is_shown(
    tmp_path: Path,
) -> None:
    content = dict(foreign_files.lying_parquet())["page-claims-much"]

    said = inspected(content, tmp_path, "--json")
    strict = inspected(content, tmp_path, "--strict")

    assert said.exit_code == 0, said.stderr
    found = json.loads(said.stdout)
    assert (found["checksums"], found["rows"]) == ("skipped", 500)
    (skipped,) = found["skipped"]
    assert "unpacks to 2,147,483,647 bytes" in skipped
    assert "--memory-limit" in skipped
    assert strict.exit_code == 6
    assert (
        run(
            "create",
            "a.b",
            "--from",
            tmp_path / "odd.parquet",
            "--key",
            "id",
            "--load",
            "--lake",
            "memory://p",
        ).exit_code
        == 6
    )


def test_a_text_that_is_named_often_is_decoded_in_small_batches(
    tmp_path: Path, commands: MeasuredCommands
) -> None:
    path = tmp_path / "odd.parquet"
    path.write_bytes(dict(foreign_files.whole_parquet())["one-text-often"])

    said = commands.run("inspect", "sst", path, "--json")

    assert json.loads(said.stdout)["checksums"] == "decoded"
    assert complaint(said) is None


def test_a_larger_limit_of_memory_decodes_more(tmp_path: Path) -> None:
    text = pa.table({"id": [1], "text": ["x" * (40 << 20)]})
    content = parquet(text, compression="zstd", use_dictionary=False, write_statistics=False)

    small = json.loads(inspected(content, tmp_path, "--json", "--memory-limit", "64MiB").stdout)
    large = json.loads(inspected(content, tmp_path, "--json", "--memory-limit", "512MiB").stdout)

    assert small["checksums"] == "skipped"
    assert large["checksums"] == "decoded"


def test_text_that_is_not_utf8_is_named_and_never_imported(tmp_path: Path) -> None:
    content = dict(foreign_files.lying_parquet())["text-not-utf8"]

    said = inspected(content, tmp_path, "--strict")
    loaded = run(
        "create",
        "a.b",
        "--from",
        tmp_path / "odd.parquet",
        "--key",
        "id",
        "--load",
        "--lake",
        "memory://u",
    )

    assert said.exit_code == 5
    assert loaded.exit_code == 2
    assert "UTF8" in loaded.stderr


def task(kind: str, *, form: str = "parquet", memory_bytes: int = 256 << 20) -> DecoderTask:
    return DecoderTask(
        task=kind, form=form, path="odd", memory_bytes=memory_bytes, batch_rows=1_000
    )


def test_a_mistake_of_the_decoder_itself_is_a_bug_and_no_damage(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")

    with (
        (tmp_path / "file").open("rb") as file,
        DecoderProcess(task("nothing"), file=file.fileno()) as process,
        pytest.raises(RuntimeError, match="KeyError"),
    ):
        next(process.frames())


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (signal.SIGABRT, FailureKind.DIED),
        (signal.SIGSEGV, FailureKind.DIED),
        (signal.SIGKILL, FailureKind.MEMORY),
        (signal.SIGPROF, FailureKind.SLOW),
    ],
)
def test_a_decoder_that_dies_leaves_its_parent_alive(number: int, kind: FailureKind) -> None:
    reads, writes = os.pipe()
    try:
        # It waits for a stream that nobody writes.
        with DecoderProcess(task("schema", form="arrow"), file=reads) as process:
            assert process._child is not None
            process._child.send_signal(number)
            with pytest.raises(DecoderFailed) as failed:
                next(process.frames())
    finally:
        os.close(reads)
        os.close(writes)

    assert failed.value.kind is kind


def test_a_decoder_that_needs_more_memory_than_it_may_have_says_so(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    text = pa.DictionaryArray.from_arrays([0], pa.array(["x" * (40 << 20)]))
    pq.write_table(pa.table({"text": text}), path, compression="zstd", write_statistics=False)

    with (
        path.open("rb") as file,
        DecoderProcess(task("batches", memory_bytes=90 << 20), file=file.fileno()) as process,
        pytest.raises(DecoderFailed) as failed,
    ):
        [*process.frames()]

    assert failed.value.kind is FailureKind.MEMORY
    assert failed.value.is_limit


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.arrow"
    struct = pa.array([{"inner": 1}])
    with pa.ipc.new_file(
        str(path), pa.schema([("id", pa.int64()), ("outer", struct.type)])
    ) as file:
        file.write(pa.record_batch([pa.array([1]), struct], names=["id", "outer"]))
    path.write_bytes(path.read_bytes().replace(b"inner", b"inn\x80r"))

    said = run("create", "a.b", "--from", path, "--key", "id", "--lake", "memory://n")

    assert said.exit_code == 2
    assert "odd.arrow" in said.stderr


def test_a_row_group_without_its_columns_is_damage(tmp_path: Path) -> None:
    content = dict(foreign_files.lying_parquet())["lie-group-without-columns"]

    said = inspected(content, tmp_path)

    assert said.exit_code == 5
    assert "has 0 columns instead of 4" in said.stderr
