"""The acts about files: old ones go when nobody needs them, and a damaged one is noticed."""

from collections.abc import Callable

from neve.cli.demo_stage import Finding, Stage, check, check_equal
from neve.cli.demo_versions import TAG, data_paths, table_root
from neve.errors import Corruption
from neve.model.shown_value import counted


def upkeep(stage: Stage) -> tuple[Finding, ...]:
    """Compact, expire, and collect garbage; the rows stay the same."""
    narrator, orders = stage.narrator, stage.orders
    before = _byte_count(stage)
    with stage.timed() as seconds:
        version = orders.compact(full=True)
    stats = orders.stats()
    check(stats.deleted_count == 0, "a full compaction left marked rows")
    narrator.say(
        f"compacted into {counted(stats.file_count, 'file')} as Version {version} in "
        f"{seconds():.2f} s, without a marked row"
    )
    kept = orders.expire(keep_last=1)
    check(kept.kept_versions, "a tag did not keep its Version")
    orders.collect_garbage(dry_run=False)
    with orders.at(tag=TAG) as old:
        check_equal(old.scan().to_arrow(), stage.table.all_rows, "a tagged Version")
    check_equal(orders.scan().to_arrow(), stage.table.rows_after, "a scan after compaction")
    between = _byte_count(stage)
    narrator.found("all Versions expired but the current and the tagged one, which still reads")
    orders.remove_tag(TAG)
    orders.expire(keep_last=1)
    orders.collect_garbage(dry_run=False)
    after = _byte_count(stage)
    check(after < min(before, between), "garbage was collected, and no byte is gone")
    check_equal(orders.scan().to_arrow(), stage.table.rows_after, "a scan after collecting garbage")
    narrator.found(
        f"without the tag its files go too: {before / 1e6:.1f} MB before, {between / 1e6:.1f} MB "
        f"with the tag, {after / 1e6:.1f} MB now; a scan gives the same rows"
    )
    report = orders.verify()
    narrator.found(
        f"verified, every byte read: {counted(report.file_count, 'file')}, "
        f"{report.row_count:,} rows, {counted(report.version_count, 'Version')}"
    )
    return (
        Finding("bytes_before", before),
        Finding("bytes_after", after, f"bytes on disk after clean-up, {before:,} before"),
        Finding("compact_seconds", round(seconds(), 3)),
    )


def damage(stage: Stage) -> tuple[Finding, ...]:
    """Flip one bit of a data file: it is reported, never returned as data."""
    narrator, orders = stage.narrator, stage.orders
    path = max(data_paths(stage), key=lambda each: each.stat().st_size)
    content = path.read_bytes()
    flipped_at = len(content) // 2
    path.write_bytes(_flipped(content, flipped_at))
    narrator.say(f"one bit flipped at byte {flipped_at:,} of a data file of {len(content):,}:")
    for call, run in (("verify", orders.verify), ("scan", orders.scan().to_arrow)):
        told = _reported(run)
        check(told.path and told.path.endswith(path.name), f"{call} names another file")
        narrator.say(f"  {call}: Corruption: {told.message}")
    narrator.found("the damaged file is named, and not one wrong row was given")
    path.write_bytes(content)
    check_equal(orders.scan().to_arrow(), stage.table.rows_after, "a scan of the restored file")
    orders.verify()
    narrator.found("with the file restored from a copy the table is sound again")
    return (Finding("flipped_at", flipped_at), Finding("reported", value=True))


def _byte_count(stage: Stage) -> int:
    """Bytes of data files, their index files and vectors, of all Versions."""
    root = table_root(stage)
    folders = [root / name for name in ("data", "index", "deletes")]
    return sum(
        path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()
    )


def _flipped(content: bytes, place: int) -> bytes:
    damaged = bytearray(content)
    damaged[place] ^= 0x10
    return bytes(damaged)


def _reported(run: Callable[[], object]) -> Corruption:
    """Give the error of a call that reads a damaged file."""
    try:
        run()
    except Corruption as error:
        return error
    raise Corruption("a flipped bit went unnoticed")
