"""neve as it is installed, without any extra: rows in, rows out, the command line.

Run by the Python of the environment that neve is installed in; ends with an error when something
does not work there.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import StaticTable

import neve

NEVE = Path(sys.executable).with_name("neve")


def main() -> None:
    """Use a table from Python and from the command line."""
    assert Path(neve.__file__).is_relative_to(sys.prefix), neve.__file__
    with tempfile.TemporaryDirectory() as folder:
        lake = f"{folder}/lake"
        _from_python(lake)
        _from_the_command_line(lake)


def _from_python(lake: str) -> None:
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "amount": pa.float64()}
    with neve.open(lake) as catalog:
        orders = catalog.create_table("shop.orders", pa.schema(columns), ["id"])
        orders.put({"id": 1, "amount": 2.5})
        orders.upsert([{"id": 2, "amount": 5.0}, {"id": 3, "amount": 7.5}])
        assert orders.flush() > 1
        orders.delete(3)
        assert orders.get(2) == {"id": 2, "amount": 5.0}
        assert orders.scan("amount > 2").to_arrow()["id"].to_pylist() == [1, 2]
        orders.flush()
        read = StaticTable.from_metadata(orders.iceberg_metadata()).scan().to_arrow()
        assert set(read["id"].to_pylist()) == {1, 2}


def _from_the_command_line(lake: str) -> None:
    assert _neve("--version").startswith("neve ")
    assert "scan" in _neve("--help")
    _neve("put", "shop.orders", '{"id": 9, "amount": 1.0}', "--lake", lake)
    rows = json.loads(_neve("scan", "shop.orders", "--json", "--lake", lake))["rows"]
    assert [row["id"] for row in rows] == [1, 2, 9], rows


def _neve(*args: str) -> str:
    ran = subprocess.run([NEVE, *args], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


if __name__ == "__main__":
    main()
