"""The write-ahead log: accepted changes that are not yet in a data file."""
