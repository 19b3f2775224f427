"""Compaction: policies that pick files, plans, and the rewrite in this process."""
