"""SQL on the tables of a lake: parsed once into statements, run by DuckDB on neve's own scans."""
