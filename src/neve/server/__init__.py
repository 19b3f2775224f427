"""A lake as an Iceberg REST catalog: other engines attach it by name, read it and write to it."""
