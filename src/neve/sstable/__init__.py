"""Data files and the files beside them: rows in Parquet, key indexes, deletion vectors."""
