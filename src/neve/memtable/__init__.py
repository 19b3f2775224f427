"""The memtable: the newest changes in memory, by key and as Arrow."""
