"""What to rewrite and how: pure policies, plans, and the rewrite in this process."""
