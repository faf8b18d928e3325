"""Does ADBC work, which brings whole tables as Arrow? By itself, under pandas, and where they are installed under polars and beside connectorx."""

import datetime as dt
import decimal

import adbc_driver_postgresql.dbapi
import pandas as pd
import pyarrow as pa

from steps import URL, refused

try:
    import connectorx
    import polars as pl
except ImportError:
    connectorx = pl = None

UTC = dt.timezone.utc
NOON = dt.datetime(2026, 7, 1, 10, 0, 0, 250_000, tzinfo=UTC)
DDL = """CREATE TABLE arrows (id bigint PRIMARY KEY, b boolean, i2 smallint, i4 int, f4 real, f8 double precision, d numeric(10, 2), t text, raw bytea,
    day date, at_time time, at timestamptz, plain timestamp, u uuid, j jsonb)"""
ROWS = 5000


def connect(**options):
    return adbc_driver_postgresql.dbapi.connect(URL, **options)


def query():
    with connect(autocommit=True) as c, c.cursor() as cursor:
        cursor.execute(DDL)
        cursor.execute("INSERT INTO arrows (id, t, at, day, f8) VALUES ($1, $2, $3, $4, $5)", (1, "one", NOON, dt.date(2026, 2, 28), 2.5))
        cursor.executemany("INSERT INTO arrows (id, b, t) VALUES ($1, $2, $3)", [(n, n % 2 == 0, f"text {n}") for n in range(2, 10)])
        cursor.execute("UPDATE arrows SET d = 12.5, raw = '\\x00ff', i2 = 3, i4 = 4, f4 = 1.5, at_time = '12:30', plain = '2026-02-28 12:00', j = '{\"a\": 1}' WHERE id = 1")
        cursor.execute("SELECT * FROM arrows ORDER BY id")
        table = cursor.fetch_arrow_table()
        assert (table.num_rows, table.schema.field("at").type, table.schema.field("day").type) == (9, pa.timestamp("us", "UTC"), pa.date32()), table.schema
        row = table.to_pylist()[0]
        assert (row["at"], row["f8"], row["raw"], row["at_time"], row["d"]) == (NOON, 2.5, b"\x00\xff", dt.time(12, 30), "12.50"), row
        cursor.execute("SELECT count(*), sum(id), avg(f8), array_agg(id) FROM arrows WHERE id > $1", (5,))
        assert cursor.fetchone()[0] == 4
        cursor.execute("SELECT id FROM arrows WHERE at = $1 AND t = $2", (NOON, "one"))
        assert cursor.fetchall() == [(1,)]


def bulk():
    """Tables are made of Arrow's, and appended to, by a binary COPY."""
    ids = list(range(ROWS))
    table = pa.table({
        "id": pa.array(ids, pa.int64()), "name": [f"name {n}" if n % 7 else None for n in ids], "x": [n / 4 for n in ids],
        "at": pa.array([NOON + dt.timedelta(seconds=n) for n in ids], pa.timestamp("us", "UTC")), "day": pa.array([dt.date(2026, 2, 28)] * ROWS),
        "yes": pa.array([n % 2 == 0 for n in ids]), "raw": pa.array([b"\x00\xff"] * ROWS), "d": pa.array([decimal.Decimal(n) / 4 for n in ids], pa.decimal128(10, 2)),
    })  # fmt: skip
    with connect() as c, c.cursor() as cursor:
        assert cursor.adbc_ingest("ingested", table, mode="create") == ROWS
        c.commit()
        assert cursor.adbc_ingest("ingested", table.slice(0, 10), mode="append") == 10
        c.rollback()
        assert cursor.adbc_ingest("ingested", table.slice(0, 10), mode="create_append") == 10
        c.commit()
        cursor.execute("SELECT * FROM ingested ORDER BY id LIMIT 3")
        rows = cursor.fetch_arrow_table().to_pylist()
        assert [row["id"] for row in rows] == [0, 0, 1] and rows[2]["at"] == NOON + dt.timedelta(seconds=1) and rows[2]["name"] == "name 1", rows
        cursor.execute("SELECT count(*), count(name) FROM ingested")
        assert cursor.fetchone() == (ROWS + 10, 4293)


def metadata():
    with connect() as c:
        info = c.adbc_get_info()
        assert info["vendor_name"] == "PostgreSQL", info
        schemas = c.adbc_get_objects(depth="columns", table_name_filter="arrows").read_all().to_pylist()
        tables = [table for of in schemas for schema in of["catalog_db_schemas"] or [] for table in schema["db_schema_tables"] or []]
        # The driver asks for them in no order.
        columns = sorted((column for table in tables for column in table["table_columns"]), key=lambda column: column["ordinal_position"])
        names = [column["column_name"] for column in columns]
        assert names[:3] == ["id", "b", "i2"], schemas
        assert c.adbc_get_table_schema("arrows").field("day").type == pa.date32()
        assert "table" in c.adbc_get_table_types()


def errors():
    with connect() as c, c.cursor() as cursor:
        refused("42P01", lambda: cursor.execute("SELECT * FROM nothing"))
        c.rollback()
        refused("23505", lambda: cursor.execute("INSERT INTO arrows (id) VALUES (1)"))
        c.rollback()


def frames():
    with connect() as c:
        frame = pd.read_sql("SELECT id, at, f8 FROM arrows ORDER BY id", c)
        assert frame["id"].tolist() == list(range(1, 10)) and frame["at"][0] == pd.Timestamp(NOON)
        pd.DataFrame({"a": [1, 2], "b": ["x", None]}).to_sql("from_pandas", c, index=False)
        c.commit()
        assert pd.read_sql("SELECT sum(a) AS s FROM from_pandas", c)["s"].astype(int).tolist() == [3]


def polars():
    frame = pl.read_database_uri("SELECT id, t, at, day, f8, b FROM arrows ORDER BY id", URL, engine="adbc")
    assert frame.shape == (9, 6) and frame["at"][0] == NOON and frame["day"][0] == dt.date(2026, 2, 28), frame
    frame.write_database("from_polars", URL, engine="adbc")
    frame.write_database("from_polars", URL, engine="adbc", if_table_exists="append")
    back = pl.read_database_uri("SELECT id, t FROM from_polars", URL, engine="adbc")
    assert back.shape == (18, 2)
    for protocol in ("binary", "csv", "cursor"):
        by = pl.read_database_uri("SELECT id, t, at, day, f8, b, d FROM arrows ORDER BY id", URL, engine="connectorx", protocol=protocol)
        assert by.shape == (9, 7) and by["t"][0] == "one" and by["f8"][0] == 2.5, (protocol, by)


def parts():
    """connectorx reads a table in parts, each on a connection of its own."""
    table = connectorx.read_sql(URL, "SELECT id, name, x, at FROM ingested", partition_on="id", partition_num=4, return_type="arrow")
    table = table if isinstance(table, pa.Table) else pa.Table.from_batches(table)
    assert table.num_rows == ROWS + 10


for part in (query, bulk, metadata, errors, frames, *((polars, parts) if pl else ())):
    part()
    print(f"{part.__name__}: passed", flush=True)
if pl is None:
    print("polars, connectorx: skipped, not installed")
