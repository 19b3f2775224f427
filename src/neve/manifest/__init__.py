"""The manifest: a transactional key-value log on object storage, and table versions on it."""
