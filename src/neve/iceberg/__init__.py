"""Iceberg: every Version of a table as an Iceberg snapshot, for readers that know nothing of neve."""
