"""Processes that work beside the harness, each asked with JSON lines.

PyIceberg and delta-rs run in an environment of their own, made from requirements-peers.lock; their
modules import neither neve nor anything that only neve's environment has. neve's own committers
and the S3 server run in neve's environment.
"""
