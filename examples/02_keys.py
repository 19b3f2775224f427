"""Encode primary keys as bytes whose order is the order of their values.

It prints:

    ('Aachen', -3)  41616368656e00007ffffffffffffffd
    ('Aachen', 12)  41616368656e0000800000000000000c
    ('Bern', -40)   4265726e00007fffffffffffffd8
    a whole column gives the same bytes: True
    keys in Aachen: 2
    NULL or NaN in a key: key column 'reading' (double) is NaN
"""

import pyarrow as pa

from neve.errors import SchemaMismatch
from neve.keys.encoding import KeyEncoder

keys = KeyEncoder([pa.string(), pa.int64()], ["city", "day"])
rows: list[tuple[str, int]] = [("Bern", -40), ("Aachen", 12), ("Aachen", -3)]

encoded = sorted(keys.encode(row) for row in rows)
for key in encoded:
    print(f"{keys.decode(key)!s:15}", key.hex())

cities, days = zip(*sorted(rows), strict=True)
columns = keys.encode_arrays([pa.array(cities), pa.array(days)])
print("a whole column gives the same bytes:", columns.to_pylist() == encoded)

# All keys with the same leading values lie next to each other.
in_aachen = keys.prefix_range(("Aachen",))
print("keys in Aachen:", sum(in_aachen.contains(key) for key in encoded))

try:
    KeyEncoder([pa.float64()], ["reading"]).encode((float("nan"),))
except SchemaMismatch as error:
    print("NULL or NaN in a key:", error.message)
