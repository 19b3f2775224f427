"""Iceberg: every Version of a table as a snapshot that other engines read."""
