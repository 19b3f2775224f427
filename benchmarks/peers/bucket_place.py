"""Where a store of the bucket benchmarks is: its directory has the file `bucket.json`.

The directory is the store's own, for what it keeps on the machine; the table is in the bucket.
"""

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, cast

from benchmarks.delaying_proxy import COUNT_PATH

_FILE: Final = "bucket.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlace:
    """A prefix of a bucket, and the address with the delay."""

    endpoint: str
    bucket: str
    prefix: str
    access_key_id: str
    secret_access_key: str

    @classmethod
    def of(cls, directory: Path) -> "BucketPlace":
        """Read where the store of a directory is."""
        return cls(**json.loads((directory / _FILE).read_text()))

    def write(self, directory: Path) -> None:
        """Say where the store of a directory is."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _FILE).write_text(json.dumps(asdict(self)))

    @property
    def location(self) -> str:
        """The place as a URI."""
        return f"s3://{self.bucket}/{self.prefix}"

    def requests(self) -> Mapping[str, int]:
        """Return how many requests came to this address so far, by kind."""
        with urllib.request.urlopen(f"{self.endpoint}{COUNT_PATH}") as answer:  # noqa: S310
            return cast("dict[str, int]", json.loads(answer.read()))

    def environment(self) -> dict[str, str]:
        """Return the place in the words of the environment."""
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_REGION": "eu-central-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_CONDITIONAL_PUT": "etag",
        }
