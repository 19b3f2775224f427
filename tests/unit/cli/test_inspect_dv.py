"""`neve inspect dv`: vectors drawn and as JSON, damaged and foreign files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyroaring import BitMap64

from neve.cli.main import cli
from neve.sstable.puffin import PuffinBlob, PuffinFooter, encode_footer, write_puffin

VECTORS = {"data/a.parquet": BitMap64([1, 3, 5]), "data/b.parquet": BitMap64(range(100))}


def inspect(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["inspect", "dv", *map(str, arguments)])


@pytest.fixture
def puffin(tmp_path: Path) -> Path:
    """Return a Puffin file with two vectors."""
    payload, _ = write_puffin(VECTORS, created_by="neve 0.1")
    path = tmp_path / "v.puffin"
    path.write_bytes(payload)
    return path


def damage(path: Path, offset: int) -> None:
    payload = bytearray(path.read_bytes())
    payload[offset] ^= 1
    path.write_bytes(payload)


def test_vectors_are_drawn(puffin: Path) -> None:
    shown = inspect(puffin, "--limit", "4")

    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        f"v.puffin  {puffin.stat().st_size} bytes · 2 blobs · created by neve 0.1",
        "╭─ deletion-vector-v1 · 46 bytes at byte 4 · 3 rows marked",
        "│ of    data/a.parquet",
        "│ rows  1, 3, 5",
        "╰─",
        "╭─ deletion-vector-v1 · 39 bytes at byte 50 · 100 rows marked",
        "│ of    data/b.parquet",
        "│ rows  0, 1, 2, 3 … 96 more up to 99",
        "╰─",
        "✔ 2 vectors are whole",
    ]


def test_vectors_are_one_json_document(puffin: Path) -> None:
    document = json.loads(inspect(puffin, "--json").stdout)

    assert document["kind"] == "puffin"
    assert document["bytes"] == puffin.stat().st_size
    assert document["properties"] == {"created-by": "neve 0.1"}
    assert document["problems"] == []
    assert {
        blob["referenced_data_file"]: BitMap64(blob["positions"]) for blob in document["blobs"]
    } == VECTORS
    first = document["blobs"][0]
    assert (first["cardinality"], first["position_min"], first["position_max"]) == (3, 1, 5)
    assert (first["offset"], first["length"], first["omitted_positions"]) == (4, 46, 0)


def test_a_limit_leaves_positions_out_of_json_and_says_how_many(puffin: Path) -> None:
    document = json.loads(inspect(puffin, "--json", "--limit", "2").stdout)

    assert [blob["positions"] for blob in document["blobs"]] == [[1, 3], [0, 1]]
    assert [blob["omitted_positions"] for blob in document["blobs"]] == [1, 98]


def test_a_damaged_vector_is_shown_beside_the_others(puffin: Path) -> None:
    damage(puffin, 30)

    shown = inspect(puffin)

    assert shown.exit_code == 0
    assert "│ ✗ the checksum of a deletion vector is wrong" in shown.stdout
    assert "100 rows marked" in shown.stdout
    assert "✔" not in shown.stdout
    assert inspect(puffin, "--strict").exit_code == 5
    document = json.loads(inspect(puffin, "--json").stdout)
    assert document["problems"] == ["the checksum of a deletion vector is wrong"]
    assert document["blobs"][0]["damage"] == document["problems"][0]
    assert "positions" not in document["blobs"][0]


def test_a_damaged_footer_is_exit_code_five(puffin: Path) -> None:
    damage(puffin, puffin.read_bytes().rindex(b'{"blobs"'))

    shown = inspect(puffin)

    assert shown.exit_code == 5
    assert shown.stdout == ""
    assert "the Puffin footer is damaged" in shown.stderr


def test_a_run_of_very_many_rows_costs_nothing(tmp_path: Path) -> None:
    many = BitMap64()
    many.add_range(0, 1 << 36)
    payload, _ = write_puffin({"a": many}, created_by="neve")
    (tmp_path / "v.puffin").write_bytes(payload)

    document = json.loads(inspect(tmp_path / "v.puffin", "--json").stdout)

    assert document["blobs"][0]["cardinality"] == 1 << 36
    assert len(document["blobs"][0]["positions"]) == 10_000


def test_other_blobs_are_listed_with_their_properties(tmp_path: Path) -> None:
    blob = PuffinBlob(
        type="apache-datasketches-theta-v1",
        fields=(1,),
        snapshot_id=7,
        sequence_number=3,
        offset=4,
        length=5,
        compression_codec="zstd",
        properties={"ndv": "12\x1b"},
    )
    payload = b"PFA1....." + encode_footer(PuffinFooter(blobs=(blob,)))
    (tmp_path / "stats.puffin").write_bytes(payload)

    lines = inspect(tmp_path / "stats.puffin").stdout.splitlines()
    document = json.loads(inspect(tmp_path / "stats.puffin", "--json").stdout)

    assert lines[1:] == [
        "╭─ apache-datasketches-theta-v1 · 5 bytes at byte 4",
        "│ ndv   12\\x1b",
        "╰─",
    ]
    assert document["blobs"][0]["snapshot_id"] == 7
    assert document["blobs"][0]["compression_codec"] == "zstd"


@pytest.mark.parametrize(
    ("payload", "looks"),
    [(b"PAR1....", "a Parquet file"), (b"a text of some length", "a text"), (b"\0\1\2", "")],
    ids=["parquet", "text", "bytes"],
)
def test_a_foreign_file_is_refused_with_what_it_looks_like(
    tmp_path: Path, payload: bytes, looks: str
) -> None:
    (tmp_path / "file").write_bytes(payload)

    refused = inspect(tmp_path / "file")

    assert refused.exit_code == 2
    assert "is not a Puffin file" in refused.stderr
    assert looks in refused.stderr


def test_a_directory_or_a_missing_file_is_a_wrong_call(tmp_path: Path) -> None:
    assert "is a directory, not a Puffin file" in inspect(tmp_path).stderr
    assert inspect(tmp_path).exit_code == 2
    assert "there is no file" in inspect(tmp_path / "none").stderr
