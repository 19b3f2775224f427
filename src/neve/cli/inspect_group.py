"""`neve inspect`: one subcommand for each kind of file."""

from typing import Final

from neve.cli.commands import LazyCommand, LazyGroup

_COMMANDS: Final = {
    "dv": LazyCommand("neve.cli.inspect_commands", "dv", "A Puffin file of deletion vectors"),
    "manifest": LazyCommand(
        "neve.cli.inspect_commands", "manifest", "An object of a manifest store, or a whole store"
    ),
    "sst": LazyCommand(
        "neve.cli.inspect_commands", "sst", "A data file, or any other Parquet file"
    ),
    "wal": LazyCommand(
        "neve.cli.inspect_commands", "wal", "A write-ahead log, or a RocksDB or LevelDB MANIFEST"
    ),
}

inspect: Final = LazyGroup(
    "inspect",
    lazy_commands=_COMMANDS,
    about="Take a file of a table apart and show what is in it, down to the bytes.",
)
