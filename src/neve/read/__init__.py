"""Reading a table: filters, scans and changes between Versions."""
