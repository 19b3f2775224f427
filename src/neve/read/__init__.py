"""Reading a table: views, point lookups, scans; plans and their in-process executor."""
