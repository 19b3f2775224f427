"""Processes that work beside the harness, each asked with JSON lines.

PyIceberg, delta-rs, SlateDB and pypaimon run in environments of their own, made from
requirements-peers.lock and requirements-pypaimon.lock; their modules import neither neve nor
anything that only neve's environment has. neve's own committers and the S3 server run in neve's
environment.
"""
