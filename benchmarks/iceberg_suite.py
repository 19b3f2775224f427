"""The workloads of published tables: what publishing costs, and how others read them."""

from collections.abc import Mapping
from typing import Final

from benchmarks.harness import BuildWorkload
from benchmarks.iceberg_peers import build_iceberg_commits, build_iceberg_scan
from benchmarks.iceberg_publish import build_iceberg_publish, build_iceberg_visible

ICEBERG_WORKLOADS: Final[Mapping[str, BuildWorkload]] = {
    "iceberg_publish": build_iceberg_publish,
    "iceberg_visible": build_iceberg_visible,
    "iceberg_commits": build_iceberg_commits,
    "iceberg_scan": build_iceberg_scan,
}
ICEBERG_WITH_PEERS: Final = frozenset({"iceberg_visible", "iceberg_commits", "iceberg_scan"})
