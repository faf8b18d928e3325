"""Are Tarn's answers over attached Parquet DuckDB's on the same files? Files of two writers, DuckDB and pyarrow, with all types, NULL, NaN, columns that
come, go and widen; equality, ranges, IN, words, LIKE, aggregates; with pruning and without, and after the archive has changed.
"""

import decimal
import os
import pathlib

import duckdb
import psycopg
import pyarrow
import pyarrow.parquet

FOLDER = pathlib.Path(os.environ["TARN_TEST_DIR"]) / "archive"

# One day of logs, an hour a file. Some columns are NULL at times, some in whole files, some are of another type in later files.
ROWS = """SELECT
  {first} + i AS id, CAST(i % 100 AS {small}) AS small, CAST(i * 7919 AS {wide}) AS wide, CAST(i % 250 AS UTINYINT) AS byte_, CAST(i * 3 AS UBIGINT) AS huge,
  CASE i % 7 WHEN 0 THEN NULL WHEN 1 THEN 'NaN'::DOUBLE WHEN 2 THEN 'Infinity'::DOUBLE ELSE i / 8 - 100 END AS share,
  CASE WHEN i % 5 = 0 THEN NULL ELSE CAST(i / 4 AS REAL) END AS ratio, CAST((i % 1000) / 4.0 AS DECIMAL({digits})) AS fare,
  CASE WHEN i % 11 = 0 THEN NULL ELSE 'GET /app/' || {hour} || '/w' || i % 97 || ' user_' || i % 13 || ' Code-' || i % 5 END AS body,
  'trace-' || {hour} || '-' || i AS trace, CASE WHEN {hour} % 6 = 0 THEN NULL ELSE 'eu-' || i % 3 END AS region, i % 2 = 0 AS ok,
  TIMESTAMP '2026-03-01 00:00:00' + INTERVAL ({hour}) HOUR + INTERVAL (i * 700) MILLISECOND AS stamp,
  TIMESTAMPTZ '2026-03-01 00:00:00+00' + INTERVAL ({hour}) HOUR + INTERVAL (i) SECOND AS seen,
  DATE '2026-03-01' + CAST(i % 40 AS INTEGER) AS day_, TIME '00:00:00' + INTERVAL (i) SECOND AS clock, encode('b' || i % 17) AS raw{more}
  FROM range({n}) t(i)"""


def write(duck, hour):
    later = hour >= 16
    rows = ROWS.format(
        first=hour * 100_000, hour=hour, n=5000, small="INTEGER" if later else "SMALLINT", wide="BIGINT" if hour >= 8 else "INTEGER",
        digits="12,2", more=", 'extra' || i % 9 AS extra, i::DOUBLE / 3 AS third" if later else "",
    )
    path = FOLDER / f"dt=2026-03-01/hr={hour:02}/part.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    if hour % 2:
        duck.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048, COMPRESSION {'zstd' if hour % 3 else 'snappy'})")
    else:
        pyarrow.parquet.write_table(duck.sql(rows).to_arrow_table(), path, row_group_size=1000, compression="zstd" if hour % 3 else "snappy")


def words(text):
    return " AND ".join(f"regexp_matches(lower(body), '(^|[^0-9a-z_]){word}([^0-9a-z_]|$)')" for word in text.split())


NAMED = [(f"matches {text}", f"SELECT count(*), sum(id) FROM logs WHERE matches(body, '{text}')", f"SELECT count(*), sum(id) FROM logs WHERE {words(text)}")
         for text in ("w7", "w7 user_3", "get app 13 w50 user_11 code 3", "nothing", "user_1", "code 4 21")]

SAME = [
    "SELECT count(*), count(share), count(ratio), count(body), count(region), count(third), count(extra) FROM logs",
    "SELECT sum(id), min(id), max(id), sum(small), sum(wide), sum(byte_), sum(huge), sum(fare) FROM logs",
    "SELECT min(stamp), max(stamp), min(day_), max(day_), min(clock), max(clock), min(body), max(body), min(trace), max(trace) FROM logs",
    "SELECT max(share), min(share), max(ratio), min(ratio) FROM logs",
    *(f"SELECT count(*), sum(id) FROM logs WHERE {condition}" for condition in (
        "trace = 'trace-7-123'", "trace IN ('trace-7-123', 'trace-20-4999', 'trace-99-1')", "trace = 'trace-7-123' OR trace = 'trace-8-1'", "small = 42", "small = 70000",
        "wide = 7919", "wide > 39000000", "wide BETWEEN 100000 AND 200000", "huge = 14997", "huge > 14000", "byte_ = 249", "byte_ < 3",
        "share = 'NaN'::double precision", "share > 500", "share > '1e30'::double precision", "share < -90", "share <> 5", "share IS NULL", "share IN ('1.5'::double precision, '2.5'::double precision)",
        "ratio > 1000", "ratio < 1", "ratio IS NULL", "fare = 12.25", "fare > 249", "fare IN (0.25, 100.5)", "NOT ok", "ok AND small < 3", "region IS NULL", "region = 'eu-1'",
        "region <> 'eu-1'", "stamp >= TIMESTAMP '2026-03-01 07:30:00' AND stamp < TIMESTAMP '2026-03-01 08:00:10'", "stamp = TIMESTAMP '2026-03-01 05:00:07'",
        "seen < TIMESTAMPTZ '2026-03-01 01:00:00+00'", "seen >= TIMESTAMPTZ '2026-03-01 23:59:00+00'", "day_ = DATE '2026-03-05'", "day_ > DATE '2026-04-08'",
        "clock < '00:00:10'", "clock = '01:00:00'", "body LIKE '%/w7 %'", "body LIKE 'GET /app/3/%'", "body ILIKE '%CODE-4'", "body NOT LIKE '%user_1%'", "body IS NULL",
        "extra = 'extra4'", "extra IS NULL", "third > 1600", "third IS NULL AND small = 1", "id = 1600001", "id IN (5, 100005, 2300000, 9999999)", "id % 977 = 0 AND share > 0",
    )),
    "SELECT region, count(*), sum(fare), count(DISTINCT small) FROM logs GROUP BY region ORDER BY region",
    "SELECT day_, count(*), max(wide) FROM logs WHERE ok GROUP BY day_ ORDER BY day_",
    "SELECT small, count(share), sum(huge) FROM logs WHERE id > 1500000 GROUP BY small ORDER BY small",
    "SELECT id, small, wide, byte_, huge, share, ratio, fare, body, trace, region, ok, stamp, day_, clock, raw FROM logs WHERE trace = 'trace-7-77'",
    "SELECT id, share, ratio, fare, body, stamp, day_, clock, raw, extra FROM logs WHERE id % 3333 = 1 ORDER BY id",
    "SELECT id FROM logs ORDER BY stamp DESC, id DESC LIMIT 10",
    "SELECT id, share FROM logs WHERE id < 500 ORDER BY share DESC NULLS LAST, id LIMIT 200",
    "SELECT a.id, b.id FROM logs a JOIN logs b ON a.trace = b.trace WHERE a.id BETWEEN 700000 AND 700020 ORDER BY a.id",
]


def plain(value):
    if isinstance(value, float):
        return "NaN" if value != value else round(value, 6) if abs(value) < 1e15 else value
    if isinstance(value, decimal.Decimal):
        return value.normalize()
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return decimal.Decimal(value).normalize()
    return value


def check(tarn, duck, stage, queries):
    duck.execute(f"CREATE OR REPLACE VIEW logs AS SELECT * EXCLUDE (dt, hr) FROM read_parquet('{FOLDER}/**/*.parquet', union_by_name = true)")
    n = 0
    for name, ours, theirs in [*NAMED, *((sql, sql, sql) for sql in queries)]:
        want = [tuple(map(plain, row)) for row in duck.execute(theirs).fetchall()]
        for pruning in ("on", "off"):
            tarn.execute(f"SET tarn.pruning = '{pruning}'")
            found = [tuple(map(plain, row)) for row in tarn.execute(ours).fetchall()]
            assert found == want, f"{stage}, pruning {pruning}, {name}:\n  tarn   {found[:3]}\n  duckdb {want[:3]} ({len(found)} and {len(want)} rows)"
            n += 1
    print(f"{stage}: {n} answers are equal", flush=True)


def main():
    tarn = psycopg.connect(f"host=127.0.0.1 port={os.environ['TARN_PORT']} user=tarn dbname=tarn", autocommit=True)
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    for hour in range(14):
        write(duck, hour)
    keys = "trace, small, wide, id, fare, day_"
    tarn.execute(f"ATTACH '{FOLDER}' AS logs WITH (hour_from = 'dt=…/hr=…', time_column = 'stamp', tokens = 'body', bloom = '{keys}')")
    errors = tarn.execute("SELECT * FROM tarn.attach_errors").fetchall()
    assert errors == [], errors

    check(tarn, duck, "a few files", [sql for sql in SAME if "extra" not in sql and "third" not in sql])
    for hour in range(14, 24):
        write(duck, hour)
    os.remove(FOLDER / "dt=2026-03-01/hr=02/part.parquet")
    rows = tarn.execute("CALL tarn.attach('logs')").fetchall()
    assert rows[0][:3] == ("logs", 50000, 10), rows
    check(tarn, duck, "wider, more and fewer", SAME)
    tarn.execute("DETACH TABLE logs")
    assert len(list(FOLDER.glob("**/*.parquet"))) == 23


main()
