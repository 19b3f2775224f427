"""SeaweedFS behind a proxy that delays and counts, in a process of its own."""

from typing import Final
from urllib.parse import urlsplit

from benchmarks.delaying_proxy import DelayingProxy
from benchmarks.peers.json_lines import serve
from neve.testing.s3_servers import seaweedfs

DELAYS_MS: Final = (0, 20, 100)

if __name__ == "__main__":
    with seaweedfs() as at:
        place = urlsplit(at.endpoint)
        assert place.hostname is not None
        assert place.port is not None
        with DelayingProxy(place.hostname, place.port, DELAYS_MS) as proxy:
            greeting = {
                "bucket": at.bucket,
                "access_key_id": at.access_key_id,
                "secret_access_key": at.secret_access_key,
                "endpoints": {
                    str(delay): f"http://127.0.0.1:{port}" for delay, port in proxy.ports.items()
                },
            }
            serve(greeting, {})
