"""Are Tarn's answers DuckDB's, to the last digit? TPC-H Q1, Q6 and the five ad-hoc queries, over rows that are hot, mixed, delivered,
compacted and evicted, on every access path that serves them; and on the lake's own Parquet files, read by DuckDB.
"""

import decimal
import os
import pathlib
import subprocess

import duckdb
import psycopg

TARN = pathlib.Path(os.environ["TARN"])
FOLDER = pathlib.Path(os.environ["TARN_TEST_DIR"])
LAKE = pathlib.Path(os.environ["TARN_LAKE"])
DATA = FOLDER / "lineitem.parquet"
SF = os.environ.get("TARN_COMPARE_SF", "0.01")

DDL = """CREATE TABLE lineitem (
  l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, l_linenumber integer NOT NULL,
  l_quantity decimal(15,2) NOT NULL, l_extendedprice decimal(15,2) NOT NULL, l_discount decimal(15,2) NOT NULL, l_tax decimal(15,2) NOT NULL,
  l_returnflag text NOT NULL, l_linestatus text NOT NULL, l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL,
  l_shipinstruct text NOT NULL, l_shipmode text NOT NULL, l_comment text NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber))"""

QUERIES = {
    "q1": """SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), sum(l_extendedprice * (1 - l_discount)),
      sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)), avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
      FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    "q6": """SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
      AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    "count": "SELECT count(*) FROM lineitem",
    "min max": "SELECT min(l_orderkey), max(l_orderkey), min(l_shipdate), max(l_comment) FROM lineitem",
    "key lookup": "SELECT * FROM lineitem WHERE l_orderkey = 1 ORDER BY l_linenumber",
    "one row": "SELECT * FROM lineitem WHERE l_orderkey = 7 AND l_linenumber = 2",
    "no row": "SELECT * FROM lineitem WHERE l_orderkey = -7 AND l_linenumber = 2",
    "range": "SELECT l_orderkey, l_linenumber, l_tax FROM lineitem WHERE l_orderkey BETWEEN 900 AND 1100 ORDER BY l_orderkey, l_linenumber",
    "non-key lookup": """SELECT * FROM lineitem WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01' AND l_discount < 0.03
      AND l_quantity < 4 ORDER BY l_orderkey, l_linenumber""",
    "projection, top 1": "SELECT l_orderkey FROM lineitem ORDER BY l_orderkey LIMIT 1",
    "full row, top 1": "SELECT * FROM lineitem ORDER BY l_orderkey, l_linenumber LIMIT 1",
    "top 10, descending": "SELECT l_orderkey, l_linenumber, l_comment FROM lineitem ORDER BY l_orderkey DESC, l_linenumber DESC LIMIT 10",
    "everything": "SELECT sum(l_partkey), sum(l_suppkey), sum(l_linenumber), count(DISTINCT l_comment), sum(length(l_shipinstruct)) FROM lineitem",
}

# The same statements run on both sides. DuckDB's upsert is written as a delete and an insert.
CHANGES = [
    "UPDATE lineitem SET l_discount = l_discount + 0.01, l_comment = 'changed' WHERE l_orderkey % 10 = 1",
    "UPDATE lineitem SET l_quantity = 50 WHERE l_orderkey = 1 AND l_linenumber = 3",
    "DELETE FROM lineitem WHERE l_shipdate >= DATE '1997-01-01' AND l_shipdate < DATE '1997-02-01'",
    "DELETE FROM lineitem WHERE l_orderkey = 7 AND l_linenumber = 2",
    "INSERT INTO lineitem SELECT l_orderkey + 1000000, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag,"
    " l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, 'copied' FROM lineitem WHERE l_orderkey < 500",
]


def normal(value):
    """Averages are decimals here and doubles there: six digits. Everything else must be equal as it is."""
    if isinstance(value, float):
        return round(decimal.Decimal(value), 6)
    if isinstance(value, decimal.Decimal):
        return value if -value.as_tuple().exponent <= 4 else round(value, 6)
    return value


def same(one, other):
    if len(one) != len(other):
        return False
    pairs = [(a, b) for left, right in zip(one, other) for a, b in zip(map(normal, left), map(normal, right))]
    return all(a == b or (isinstance(a, decimal.Decimal) and abs(a - b) <= decimal.Decimal("0.000001") and -b.as_tuple().exponent > 4) for a, b in pairs)


class Comparison:
    def __init__(self):
        port = os.environ["TARN_PORT"]
        self.tarn = psycopg.connect(f"host=127.0.0.1 port={port} user=tarn dbname=tarn", autocommit=True)
        self.duck = duckdb.connect()
        self.n = 0

    def run(self, sql):
        self.tarn.execute(sql)
        self.duck.execute(sql)

    def check(self, stage):
        for name, sql in QUERIES.items():
            want = self.duck.execute(sql).fetchall()
            for path in ("auto", "lake", "rows"):
                self.tarn.execute(f"SET tarn.access_path = '{path}'")
                try:
                    found = self.tarn.execute(sql).fetchall()
                except psycopg.Error as error:
                    # The rows path is not offered for every query, nor while rows are evicted; it must say so.
                    if path == "rows" and error.sqlstate == "0A000":
                        continue
                    raise AssertionError(f"{stage}, {name} on {path}: {error}") from error
                assert same(found, want), f"{stage}, {name} on {path}:\n  tarn   {found[:3]}\n  duckdb {want[:3]} ({len(found)} and {len(want)} rows)"
                self.n += 1
        self.tarn.execute("SET tarn.access_path = 'auto'")
        print(f"{stage}: equal", flush=True)

    def check_files(self, stage):
        """DuckDB on the lake's files themselves: only where no row of them is dead."""
        paths = self.tarn.execute("SELECT path, dead_rows FROM tarn.files WHERE table_name = 'lineitem'").fetchall()
        dead = sum(row[1] for row in paths)
        assert paths and dead == 0, f"{stage}: {len(paths)} files, {dead} dead rows"
        files = ", ".join(f"'{LAKE / path.lstrip('/')}'" for path, _ in paths)
        other = duckdb.connect()
        other.execute(f"CREATE VIEW lineitem AS SELECT * EXCLUDE (__seqno) FROM read_parquet([{files}])")
        for name, sql in QUERIES.items():
            want, found = self.duck.execute(sql).fetchall(), other.execute(sql).fetchall()
            assert found == want or same(found, want), f"{stage}, {name}: the files hold {found[:3]}, want {want[:3]}"
        print(f"{stage}: the lake's files hold it", flush=True)


def load(where, name):
    path = FOLDER / name
    duckdb.execute(f"COPY (SELECT * FROM '{DATA}' WHERE {where}) TO '{path}' (FORMAT parquet)")
    done = subprocess.run([TARN, "load", path, "--table", "lineitem"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


def main():
    subprocess.run([TARN.with_name("tarn-bench"), "data", "--sf", SF, "--out", DATA], check=True)
    both = Comparison()
    both.tarn.execute(DDL)
    both.duck.execute(f"CREATE TABLE lineitem AS SELECT * FROM '{DATA}' WHERE l_orderkey % 2 = 0")
    load("l_orderkey % 2 = 0", "even.parquet")
    both.check("hot only")
    both.tarn.execute("CALL tarn.deliver('lineitem')")
    both.check("delivered only")
    both.check_files("delivered only")

    load("l_orderkey % 2 = 1", "odd.parquet")
    both.duck.execute(f"INSERT INTO lineitem SELECT * FROM '{DATA}' WHERE l_orderkey % 2 = 1")
    both.check("half delivered, half hot")
    for sql in CHANGES:
        rows = both.tarn.execute(sql).rowcount
        want = both.duck.execute(sql).fetchone()[0]
        assert rows == want, f"{sql}: {rows} rows, DuckDB {want}"
    both.check("changed over delivered")
    both.tarn.execute("CALL tarn.deliver('lineitem')")
    both.check("changes delivered")
    both.run(CHANGES[0])
    both.check("changed again")
    both.tarn.execute("CALL tarn.deliver('lineitem')")
    both.tarn.execute("CALL tarn.compact('lineitem')")
    both.check("compacted")
    both.check_files("compacted")
    both.tarn.execute("CALL tarn.evict('lineitem')")
    both.check("evicted")
    both.run(CHANGES[1])
    both.run("UPDATE lineitem SET l_tax = 0.99 WHERE l_orderkey BETWEEN 100 AND 200")
    both.check("changed after eviction")
    print(f"{both.n} answers compared")


main()
