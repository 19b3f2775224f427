"""Named workloads, each run beside its peers; `python -m benchmarks.run` runs them."""
