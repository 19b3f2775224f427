"""S3 for the harness in a process of its own, so that its work is not taken for a committer's."""

from benchmarks.peers.json_lines import serve
from neve.testing.s3_servers import locked_moto

if __name__ == "__main__":
    with locked_moto() as server:
        serve(
            {"location": server.at.location(""), "storage_options": server.at.storage_options()}, {}
        )
