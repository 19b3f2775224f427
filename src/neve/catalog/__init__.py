"""The catalog of a lake: the names, definitions and snapshots of its tables."""
