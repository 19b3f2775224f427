"""The live table: its threads, its locks, and the order of its steps."""
