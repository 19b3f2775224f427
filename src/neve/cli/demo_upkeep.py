"""The acts about files: old ones go when nobody needs them, and a damaged one is noticed."""

from collections.abc import Callable
from pathlib import Path

from examples.demo.stage import Finding, Found, Stage, check, check_equal, shown_seconds
from examples.demo.table_acts import TAG

from neve.errors import Corruption
from neve.model.display import counted, shown_bytes


def upkeep(stage: Stage) -> tuple[Found, ...]:
    """Compact, expire, and collect garbage; the rows stay the same."""
    narrator, orders = stage.narrator, stage.orders
    before = _byte_count(stage)
    rows = orders.stats().row_count
    with (
        narrator.progress("compaction", total=rows) as told,
        stage.timed() as seconds,
    ):
        version = orders.compact(full=True, progress=lambda done, _total: told(done))
    stats = orders.stats()
    check(stats.deleted_count == 0, "a full compaction left marked rows")
    narrator.say(
        f"compacted into {counted(stats.file_count, 'file')} as Version {version} in "
        f"{shown_seconds(seconds())}, without a marked row"
    )
    kept = orders.expire(keep_last=1)
    check(kept.kept_versions, "a tag did not keep its Version")
    orders.collect_garbage(dry_run=False)
    with orders.at(tag=TAG) as old:
        check_equal(old.scan().to_arrow(), stage.table.all_rows, "a tagged Version")
    narrator.found("old Versions expired; the tagged one still reads as it was")
    orders.remove_tag(TAG)
    orders.expire(keep_last=1)
    orders.collect_garbage(dry_run=False)
    after = _byte_count(stage)
    check(after < before, "garbage was collected, and no byte is gone")
    check_equal(orders.scan().to_arrow(), stage.table.rows_after, "a scan after collecting garbage")
    narrator.found(
        f"without the tag its files go too: {shown_bytes(before)} before, {shown_bytes(after)} now"
    )
    report = orders.verify()
    narrator.found(
        f"verified, every byte: {counted(report.file_count, 'file')}, {report.row_count:,} rows"
    )
    return (
        Finding("bytes_before", before),
        Finding("bytes_after", after, f"bytes on disk after clean-up, {before:,} before"),
        Finding("compact_seconds", round(seconds(), 3)),
    )


def damage(stage: Stage) -> tuple[Found, ...]:
    """Flip one bit of a data file: it is reported, never returned as data."""
    narrator, orders = stage.narrator, stage.orders
    paths = [_root(stage) / path for path in orders.current().version.files]
    path = max(paths, key=lambda each: each.stat().st_size)
    content = path.read_bytes()
    flipped_at = len(content) // 2
    path.write_bytes(_flipped(content, flipped_at))
    narrator.say(f"one bit flipped at byte {flipped_at:,} of a data file of {len(content):,} bytes")
    for call, run in (("verify", orders.verify), ("scan", orders.scan().to_arrow)):
        told = _reported(run)
        check(told.path and told.path.endswith(path.name), f"{call} names another file")
        narrator.found(f"{call} raises Corruption: {told.message}")
    path.write_bytes(content)
    check_equal(orders.scan().to_arrow(), stage.table.rows_after, "a scan of the restored file")
    orders.verify()
    narrator.found("not one wrong row was given; with the file restored all is sound")
    return (Finding("flipped_at", flipped_at), Finding("reported", value=True))


def _byte_count(stage: Stage) -> int:
    """Bytes of data files, their index files and vectors, of all Versions."""
    root = _root(stage)
    folders = [root / name for name in ("data", "index", "deletes")]
    return sum(
        path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()
    )


def _root(stage: Stage) -> Path:
    return stage.root / stage.orders.stored.paths.root


def _flipped(content: bytes, place: int) -> bytes:
    damaged = bytearray(content)
    damaged[place] ^= 0x10
    return bytes(damaged)


def _reported(run: Callable[[], object]) -> Corruption:
    """Return the error of a call that reads a damaged file."""
    try:
        run()
    except Corruption as error:
        return error
    raise Corruption("a flipped bit went unnoticed")
