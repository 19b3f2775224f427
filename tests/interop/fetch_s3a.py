"""Fetches hadoop-aws from Maven with Spark's own resolver, for the Hadoop of this PySpark.

    python -m tests.interop.fetch_s3a FOLDER

The jars are in FOLDER/jars afterwards. Exits with 1 where Maven cannot be reached.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from neve.errors import Unavailable
from neve.spark import session


def main(folder: str) -> int:
    jars = Path(pyspark.__file__).parent / "jars"
    (client,) = jars.glob("hadoop-client-api-*.jar")
    found = re.search(r"api-(.+)\.jar", client.name)
    assert found is not None
    wanted = f"org.apache.hadoop:hadoop-aws:{found[1]}"
    maven = shutil.which("mvn")
    if maven is not None:
        # It may know a proxy that Spark's resolver does not; that finds what it fetched.
        subprocess.run([maven, "-q", "-B", "dependency:get", f"-Dartifact={wanted}"], check=False)
    settings = {
        "spark.jars.packages": wanted,
        "spark.jars.ivy": str(Path(folder).absolute()),
    }
    try:
        session(master="local[1]", config=settings).stop()
    except Unavailable:
        print("Maven cannot be reached: reads through S3A are not tested", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
