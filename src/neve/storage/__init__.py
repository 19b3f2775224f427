"""Bytes: where they live, when they are durable, and where time and ids come from."""
