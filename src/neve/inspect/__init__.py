"""Takes files apart, down to the bytes: logs, manifests, data files and deletion vectors.

Files of other systems too: reading the logs of RocksDB, LevelDB and merutable, and any Parquet
file, is a feature of the product, for inspection and for migration.
"""
