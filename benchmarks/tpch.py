"""TPC-H: its tables made by a seeded generator, and its 22 queries with usual parameters.

The rows are not dbgen's: columns have its ranges, its correlations where queries depend on them
(dates of a line item, suppliers of a part, customers without orders) and its words, so every query
finds rows. `scale` 1 has 6 million line items.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neve.catalog.lake import Lake

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
REGIONS: Final = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS: Final = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0),
    ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4),
    ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0), ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1),
    ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3),
    ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
)  # fmt: skip
COLOURS: Final = (
    "almond", "antique", "aquamarine", "azure", "beige", "bisque", "black", "blanched", "blue",
    "blush", "brown", "burlywood", "chartreuse", "chiffon", "chocolate", "coral", "cream",
    "cyan", "dark", "deep", "dim", "dodger", "drab", "firebrick", "forest", "green", "grey",
    "honeydew", "hot", "indian", "ivory", "khaki", "lace", "lavender", "lawn", "lemon",
)  # fmt: skip
SEGMENTS: Final = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
PRIORITIES: Final = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
MODES: Final = ("AIR", "AIR REG", "FOB", "MAIL", "RAIL", "SHIP", "TRUCK")
INSTRUCTIONS: Final = ("COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN")
TYPES: Final = tuple(
    f"{size} {finish} {metal}"
    for size in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for finish in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for metal in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
)
CONTAINERS: Final = tuple(
    f"{size} {kind}"
    for size in ("SM", "LG", "MED", "JUMBO", "WRAP")
    for kind in ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
)
WORDS: Final = (
    "carefully", "final", "packages", "sleep", "special", "requests", "quickly", "bold",
    "deposits", "haggle", "pending", "accounts", "furiously", "express", "ideas", "nag",
    "Customer", "Complaints", "slyly", "ironic", "theodolites",
)  # fmt: skip
QUERIES: Final[dict[int, str]] = {
    1: """
select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty,
    sum(l_extendedprice) as sum_base_price,
    sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
    sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
    avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc,
    count(*) as count_order
from tpch.lineitem where l_shipdate <= date '1998-12-01' - interval 90 day
group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus
""",
    2: """
select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
from tpch.part, tpch.supplier, tpch.partsupp, tpch.nation, tpch.region
where p_partkey = ps_partkey and s_suppkey = ps_suppkey and p_size = 15 and p_type like '%BRASS'
    and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'EUROPE'
    and ps_supplycost = (select min(ps_supplycost)
        from tpch.partsupp, tpch.supplier, tpch.nation, tpch.region
        where p_partkey = ps_partkey and s_suppkey = ps_suppkey and s_nationkey = n_nationkey
            and n_regionkey = r_regionkey and r_name = 'EUROPE')
order by s_acctbal desc, n_name, s_name, p_partkey limit 100
""",
    3: """
select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate,
    o_shippriority
from tpch.customer, tpch.orders, tpch.lineitem
where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
    and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
group by l_orderkey, o_orderdate, o_shippriority
order by revenue desc, o_orderdate, l_orderkey limit 10
""",
    4: """
select o_orderpriority, count(*) as order_count from tpch.orders
where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-07-01' + interval 3 month
    and exists (select * from tpch.lineitem
        where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
group by o_orderpriority order by o_orderpriority
""",
    5: """
select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
from tpch.customer, tpch.orders, tpch.lineitem, tpch.supplier, tpch.nation, tpch.region
where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
    and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
    and r_name = 'ASIA' and o_orderdate >= date '1994-01-01'
    and o_orderdate < date '1994-01-01' + interval 1 year
group by n_name order by revenue desc
""",
    6: """
select sum(l_extendedprice * l_discount) as revenue from tpch.lineitem
where l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval 1 year
    and l_discount between 0.06 - 0.01 and 0.06 + 0.01 and l_quantity < 24
""",
    7: """
select supp_nation, cust_nation, l_year, sum(volume) as revenue
from (select n1.n_name as supp_nation, n2.n_name as cust_nation,
        extract(year from l_shipdate) as l_year, l_extendedprice * (1 - l_discount) as volume
    from tpch.supplier, tpch.lineitem, tpch.orders, tpch.customer, tpch.nation n1, tpch.nation n2
    where s_suppkey = l_suppkey and o_orderkey = l_orderkey and c_custkey = o_custkey
        and s_nationkey = n1.n_nationkey and c_nationkey = n2.n_nationkey
        and ((n1.n_name = 'FRANCE' and n2.n_name = 'GERMANY')
            or (n1.n_name = 'GERMANY' and n2.n_name = 'FRANCE'))
        and l_shipdate between date '1995-01-01' and date '1996-12-31') as shipping
group by supp_nation, cust_nation, l_year order by supp_nation, cust_nation, l_year
""",
    8: """
select o_year, sum(case when nation = 'BRAZIL' then volume else 0 end) / sum(volume) as mkt_share
from (select extract(year from o_orderdate) as o_year,
        l_extendedprice * (1 - l_discount) as volume, n2.n_name as nation
    from tpch.part, tpch.supplier, tpch.lineitem, tpch.orders, tpch.customer, tpch.nation n1,
        tpch.nation n2, tpch.region
    where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey
        and o_custkey = c_custkey and c_nationkey = n1.n_nationkey
        and n1.n_regionkey = r_regionkey and r_name = 'AMERICA' and s_nationkey = n2.n_nationkey
        and o_orderdate between date '1995-01-01' and date '1996-12-31'
        and p_type = 'ECONOMY ANODIZED STEEL') as all_nations
group by o_year order by o_year
""",
    9: """
select nation, o_year, sum(amount) as sum_profit
from (select n_name as nation, extract(year from o_orderdate) as o_year,
        l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
    from tpch.part, tpch.supplier, tpch.lineitem, tpch.partsupp, tpch.orders, tpch.nation
    where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey
        and p_partkey = l_partkey and o_orderkey = l_orderkey and s_nationkey = n_nationkey
        and p_name like '%green%') as profit
group by nation, o_year order by nation, o_year desc
""",
    10: """
select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name,
    c_address, c_phone, c_comment
from tpch.customer, tpch.orders, tpch.lineitem, tpch.nation
where c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate >= date '1993-10-01'
    and o_orderdate < date '1993-10-01' + interval 3 month and l_returnflag = 'R'
    and c_nationkey = n_nationkey
group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
order by revenue desc, c_custkey limit 20
""",
    11: """
select ps_partkey, sum(ps_supplycost * ps_availqty) as value
from tpch.partsupp, tpch.supplier, tpch.nation
where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY'
group by ps_partkey
having sum(ps_supplycost * ps_availqty) > (
    select sum(ps_supplycost * ps_availqty) * 0.0001
    from tpch.partsupp, tpch.supplier, tpch.nation
    where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY')
order by value desc, ps_partkey
""",
    12: """
select l_shipmode,
    sum(case when o_orderpriority in ('1-URGENT', '2-HIGH') then 1 else 0 end) as high_line_count,
    sum(case when o_orderpriority not in ('1-URGENT', '2-HIGH') then 1 else 0 end)
        as low_line_count
from tpch.orders, tpch.lineitem
where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
    and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01'
    and l_receiptdate < date '1994-01-01' + interval 1 year
group by l_shipmode order by l_shipmode
""",
    13: """
select c_count, count(*) as custdist
from (select c_custkey, count(o_orderkey) as c_count
    from tpch.customer left outer join tpch.orders
        on c_custkey = o_custkey and o_comment not like '%special%requests%'
    group by c_custkey) as c_orders
group by c_count order by custdist desc, c_count desc
""",
    14: """
select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount)
    else 0 end) / sum(l_extendedprice * (1 - l_discount)) as promo_revenue
from tpch.lineitem, tpch.part
where l_partkey = p_partkey and l_shipdate >= date '1995-09-01'
    and l_shipdate < date '1995-09-01' + interval 1 month
""",
    15: """
with revenue as (
    select l_suppkey as supplier_no, sum(l_extendedprice * (1 - l_discount)) as total_revenue
    from tpch.lineitem
    where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-01-01' + interval 3 month
    group by l_suppkey)
select s_suppkey, s_name, s_address, s_phone, total_revenue from tpch.supplier, revenue
where s_suppkey = supplier_no
    and total_revenue = (select max(total_revenue) from revenue)
order by s_suppkey
""",
    16: """
select p_brand, p_type, p_size, count(distinct ps_suppkey) as supplier_cnt
from tpch.partsupp, tpch.part
where p_partkey = ps_partkey and p_brand <> 'Brand#45' and p_type not like 'MEDIUM POLISHED%'
    and p_size in (49, 14, 23, 45, 19, 3, 36, 9)
    and ps_suppkey not in (select s_suppkey from tpch.supplier
        where s_comment like '%Customer%Complaints%')
group by p_brand, p_type, p_size order by supplier_cnt desc, p_brand, p_type, p_size
""",
    17: """
select sum(l_extendedprice) / 7.0 as avg_yearly from tpch.lineitem, tpch.part
where p_partkey = l_partkey and p_brand = 'Brand#23' and p_container like 'MED %'
    and l_quantity < (select 0.2 * avg(l_quantity) from tpch.lineitem where l_partkey = p_partkey)
""",
    18: """
select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity)
from tpch.customer, tpch.orders, tpch.lineitem
where o_orderkey in (select l_orderkey from tpch.lineitem
        group by l_orderkey having sum(l_quantity) > 250)
    and c_custkey = o_custkey and o_orderkey = l_orderkey
group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
order by o_totalprice desc, o_orderdate, o_orderkey limit 100
""",
    19: """
select sum(l_extendedprice * (1 - l_discount)) as revenue from tpch.lineitem, tpch.part
where (p_partkey = l_partkey and p_brand = 'Brand#12'
        and p_container in ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
        and l_quantity >= 1 and l_quantity <= 11 and p_size between 1 and 25
        and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')
    or (p_partkey = l_partkey and p_brand = 'Brand#23'
        and p_container in ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
        and l_quantity >= 10 and l_quantity <= 20 and p_size between 1 and 30
        and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')
    or (p_partkey = l_partkey and p_brand = 'Brand#34'
        and p_container in ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
        and l_quantity >= 20 and l_quantity <= 30 and p_size between 1 and 35
        and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')
""",
    20: """
select s_name, s_address from tpch.supplier, tpch.nation
where s_suppkey in (select ps_suppkey from tpch.partsupp
        where ps_partkey in (select p_partkey from tpch.part where p_name like 'forest%')
            and ps_availqty > (select 0.5 * sum(l_quantity) from tpch.lineitem
                where l_partkey = ps_partkey and l_suppkey = ps_suppkey
                    and l_shipdate >= date '1994-01-01'
                    and l_shipdate < date '1994-01-01' + interval 1 year))
    and s_nationkey = n_nationkey and n_name = 'CANADA'
order by s_name
""",
    21: """
select s_name, count(*) as numwait
from tpch.supplier, tpch.lineitem l1, tpch.orders, tpch.nation
where s_suppkey = l1.l_suppkey and o_orderkey = l1.l_orderkey and o_orderstatus = 'F'
    and l1.l_receiptdate > l1.l_commitdate
    and exists (select * from tpch.lineitem l2
        where l2.l_orderkey = l1.l_orderkey and l2.l_suppkey <> l1.l_suppkey)
    and not exists (select * from tpch.lineitem l3
        where l3.l_orderkey = l1.l_orderkey and l3.l_suppkey <> l1.l_suppkey
            and l3.l_receiptdate > l3.l_commitdate)
    and s_nationkey = n_nationkey and n_name = 'SAUDI ARABIA'
group by s_name order by numwait desc, s_name limit 100
""",
    22: """
select cntrycode, count(*) as numcust, sum(c_acctbal) as totacctbal
from (select substring(c_phone from 1 for 2) as cntrycode, c_acctbal from tpch.customer
    where substring(c_phone from 1 for 2) in ('13', '31', '23', '29', '30', '18', '17')
        and c_acctbal > (select avg(c_acctbal) from tpch.customer where c_acctbal > 0.00
            and substring(c_phone from 1 for 2) in ('13', '31', '23', '29', '30', '18', '17'))
        and not exists (select * from tpch.orders where o_custkey = c_custkey)) as custsale
group by cntrycode order by cntrycode
""",
}
_SUPPLIERS_PER_PART: Final = 4
_START: Final = (date(1992, 1, 1) - date(1970, 1, 1)).days
_TODAY: Final = (date(1995, 6, 17) - date(1970, 1, 1)).days
_ORDER_DAYS: Final = 2_406 - 151
Numbers = npt.NDArray[Any]
Strings = Any
"""An Arrow array; the stubs do not know how its functions join texts."""


def tables(scale: float, seed: int = 1) -> dict[str, pa.Table]:
    """Return the eight tables; the same ones for the same scale and seed."""
    rng = np.random.default_rng(seed)
    suppliers, customers = max(int(10_000 * scale), 20), max(int(150_000 * scale), 150)
    parts, order_count = max(int(200_000 * scale), 200), max(int(1_500_000 * scale), 1_500)
    found = {"region": _region(rng), "nation": _nation(rng)}
    found["supplier"] = _supplier(rng, suppliers)
    found["customer"] = _customer(rng, customers)
    found["part"], prices = _part(rng, parts)
    found["partsupp"] = _partsupp(rng, parts, suppliers)
    found |= _orders(rng, order_count, customers, suppliers, prices)
    return found


def _joined(*texts: Strings) -> Strings:
    """Join texts; the last one is between them."""
    join: Any = pc.binary_join_element_wise
    return join(*texts)


def _money(values: Numbers) -> Strings:
    """Return decimals with two digits: cents, as integers of 16 bytes."""
    cents = np.rint(values * 100).astype(np.int64)
    wide = np.empty((len(cents), 2), np.int64)
    wide[:, 0] = cents
    wide[:, 1] = np.where(cents < 0, -1, 0)
    return pa.Array.from_buffers(
        pa.decimal128(15, 2), len(cents), [None, pa.py_buffer(wide.tobytes())]
    )


def _chosen(rng: np.random.Generator, words: Sequence[str], count: int) -> Strings:
    return pa.array(list(words)).take(pa.array(rng.integers(0, len(words), count), pa.int64()))


def _text(rng: np.random.Generator, count: int, length: int = 5) -> Strings:
    columns = [_chosen(rng, WORDS, count) for _ in range(length)]
    return _joined(*columns, " ")


def _named(prefix: str, numbers: Numbers) -> Strings:
    return _joined(
        prefix,
        pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 9, "0"),
        "#",
    )


def _phone(rng: np.random.Generator, nations: Numbers) -> Strings:
    return _joined(
        pa.array(nations + 10).cast(pa.string()),
        pa.array(rng.integers(100, 1_000, len(nations))).cast(pa.string()),
        pa.array(rng.integers(100, 1_000, len(nations))).cast(pa.string()),
        pa.array(rng.integers(1_000, 10_000, len(nations))).cast(pa.string()),
        "-",
    )


def _region(rng: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "r_regionkey": pa.array(range(5), pa.int32()),
            "r_name": list(REGIONS),
            "r_comment": _text(rng, 5),
        }
    )


def _nation(rng: np.random.Generator) -> pa.Table:
    return pa.table(
        {
            "n_nationkey": pa.array(range(len(NATIONS)), pa.int32()),
            "n_name": [name for name, _ in NATIONS],
            "n_regionkey": pa.array([region for _, region in NATIONS], pa.int32()),
            "n_comment": _text(rng, len(NATIONS)),
        }
    )


def _supplier(rng: np.random.Generator, count: int) -> pa.Table:
    numbers = np.arange(1, count + 1)
    nations = rng.integers(0, len(NATIONS), count)
    return pa.table(
        {
            "s_suppkey": pa.array(numbers, pa.int64()),
            "s_name": _named("Supplier", numbers),
            "s_address": _text(rng, count, 3),
            "s_nationkey": pa.array(nations, pa.int32()),
            "s_phone": _phone(rng, nations),
            "s_acctbal": _money(rng.uniform(-999, 9_999, count)),
            "s_comment": _text(rng, count, 6),
        }
    )


def _customer(rng: np.random.Generator, count: int) -> pa.Table:
    numbers = np.arange(1, count + 1)
    nations = rng.integers(0, len(NATIONS), count)
    return pa.table(
        {
            "c_custkey": pa.array(numbers, pa.int64()),
            "c_name": _named("Customer", numbers),
            "c_address": _text(rng, count, 3),
            "c_nationkey": pa.array(nations, pa.int32()),
            "c_phone": _phone(rng, nations),
            "c_acctbal": _money(rng.uniform(-999, 9_999, count)),
            "c_mktsegment": _chosen(rng, SEGMENTS, count),
            "c_comment": _text(rng, count, 8),
        }
    )


def _part(rng: np.random.Generator, count: int) -> tuple[pa.Table, Numbers]:
    numbers = np.arange(1, count + 1)
    prices = (90_000 + (numbers // 10) % 20_001 + 100 * (numbers % 1_000)) / 100
    makers = rng.integers(1, 6, count)
    brands = makers * 10 + rng.integers(1, 6, count)
    names = [_chosen(rng, COLOURS, count) for _ in range(5)]
    table = pa.table(
        {
            "p_partkey": pa.array(numbers, pa.int64()),
            "p_name": _joined(*names, " "),
            "p_mfgr": _joined("Manufacturer", pa.array(makers).cast(pa.string()), "#"),
            "p_brand": _joined("Brand", pa.array(brands).cast(pa.string()), "#"),
            "p_type": _chosen(rng, TYPES, count),
            "p_size": pa.array(rng.integers(1, 51, count), pa.int32()),
            "p_container": _chosen(rng, CONTAINERS, count),
            "p_retailprice": _money(prices),
            "p_comment": _text(rng, count, 3),
        }
    )
    return table, prices


def _supplier_of(parts: Numbers, place: Numbers, suppliers: int) -> Numbers:
    step = suppliers // _SUPPLIERS_PER_PART + (parts - 1) // suppliers
    found: Numbers = (parts + place * step) % suppliers + 1
    return found


def _partsupp(rng: np.random.Generator, parts: int, suppliers: int) -> pa.Table:
    numbers = np.repeat(np.arange(1, parts + 1), _SUPPLIERS_PER_PART)
    place = np.tile(np.arange(_SUPPLIERS_PER_PART), parts)
    count = len(numbers)
    return pa.table(
        {
            "ps_partkey": pa.array(numbers, pa.int64()),
            "ps_suppkey": pa.array(_supplier_of(numbers, place, suppliers), pa.int64()),
            "ps_availqty": pa.array(rng.integers(1, 10_000, count), pa.int32()),
            "ps_supplycost": _money(rng.uniform(1, 1_000, count)),
            "ps_comment": _text(rng, count, 6),
        }
    )


def _orders(
    rng: np.random.Generator, count: int, customers: int, suppliers: int, prices: Numbers
) -> dict[str, pa.Table]:
    keys = np.arange(count) // 8 * 32 + np.arange(count) % 8 + 1
    bought_by = rng.integers(1, customers + 1, count)
    bought_by += bought_by % 3 == 0  # every third customer has no orders
    bought_by = np.minimum(bought_by, customers - (customers % 3 == 0))
    ordered = _START + rng.integers(0, _ORDER_DAYS, count)
    lines = rng.integers(1, 8, count)
    order = np.repeat(np.arange(count), lines)
    total = len(order)
    number = np.arange(total) - np.repeat(np.cumsum(lines) - lines, lines) + 1
    part = rng.integers(1, len(prices) + 1, total)
    quantity = rng.integers(1, 51, total)
    price = np.round(quantity * prices[part - 1], 2)
    discount, tax = rng.integers(0, 11, total) / 100, rng.integers(0, 9, total) / 100
    shipped = ordered[order] + rng.integers(1, 122, total)
    committed = ordered[order] + rng.integers(30, 91, total)
    received = shipped + rng.integers(1, 31, total)
    is_open = shipped > _TODAY
    returned = np.where(received <= _TODAY, np.where(rng.random(total) < 0.5, "R", "A"), "N")
    open_lines = np.bincount(order, is_open, count)
    status = np.where(open_lines == 0, "F", np.where(open_lines == lines, "O", "P"))
    charged = np.bincount(order, price * (1 + tax) * (1 - discount), count)
    orders = pa.table(
        {
            "o_orderkey": pa.array(keys, pa.int64()),
            "o_custkey": pa.array(bought_by, pa.int64()),
            "o_orderstatus": pa.array(status),
            "o_totalprice": _money(charged),
            "o_orderdate": pa.array(ordered.astype(np.int32), pa.date32()),
            "o_orderpriority": _chosen(rng, PRIORITIES, count),
            "o_clerk": _named("Clerk", rng.integers(1, max(count // 1_500, 2), count)),
            "o_shippriority": pa.array(np.zeros(count), pa.int32()),
            "o_comment": _text(rng, count, 6),
        }
    )
    items = pa.table(
        {
            "l_orderkey": pa.array(keys[order], pa.int64()),
            "l_partkey": pa.array(part, pa.int64()),
            "l_suppkey": pa.array(
                _supplier_of(part, rng.integers(0, _SUPPLIERS_PER_PART, total), suppliers),
                pa.int64(),
            ),
            "l_linenumber": pa.array(number, pa.int32()),
            "l_quantity": _money(quantity.astype(float)),
            "l_extendedprice": _money(price),
            "l_discount": _money(discount),
            "l_tax": _money(tax),
            "l_returnflag": pa.array(returned),
            "l_linestatus": pa.array(np.where(is_open, "O", "F")),
            "l_shipdate": pa.array(shipped.astype(np.int32), pa.date32()),
            "l_commitdate": pa.array(committed.astype(np.int32), pa.date32()),
            "l_receiptdate": pa.array(received.astype(np.int32), pa.date32()),
            "l_shipinstruct": _chosen(rng, INSTRUCTIONS, total),
            "l_shipmode": _chosen(rng, MODES, total),
            "l_comment": _text(rng, total, 3),
        }
    )
    return {"orders": orders, "lineitem": items}


def load(lake: Lake, rows: Mapping[str, pa.Table], *, unflushed: int = 1_000) -> None:
    """Make the tables of a lake, with a tenth of their rows dead and some only in the log."""
    for name, table in rows.items():
        key = KEYS[name]
        schema = pa.schema([field.with_nullable(field.name not in key) for field in table.schema])
        made = lake.create_table(f"tpch.{name}", schema, primary_key=key)
        comment = next(each for each in table.column_names if each.endswith("_comment"))
        place = table.column_names.index(comment)
        is_stale = np.arange(table.num_rows) % 10 == 0
        comments = pc.if_else(pa.array(is_stale), "stale", table.column(comment))
        last = table.num_rows - min(unflushed, table.num_rows // 2)
        made.upsert(table.set_column(place, comment, comments).slice(0, last))
        made.flush()
        made.upsert(table.slice(0, last).filter(pa.array(is_stale[:last])))
        made.flush()
        made.upsert(table.slice(last))


def view_files(
    connection: duckdb.DuckDBPyConnection, rows: Mapping[str, pa.Table], folder: Path
) -> None:
    """Write bare Parquet files, and let DuckDB read them by the names of the tables."""
    connection.execute("CREATE SCHEMA tpch")
    for name, table in rows.items():
        path = folder / f"{name}.parquet"
        pq.write_table(table, path, compression="zstd", row_group_size=1 << 17)
        connection.execute(f"CREATE VIEW tpch.{name} AS SELECT * FROM read_parquet('{path}')")
