"""Jobs that work on a table beside its live writer, in this process or another."""
