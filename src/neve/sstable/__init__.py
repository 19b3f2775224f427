"""Data files and what lies beside them: rows in Parquet, key indexes, deletion vectors."""
