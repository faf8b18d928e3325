"""Does psycopg 3 work? Types both ways in text and binary, prepared statements, pipelines, COPY, a server-side cursor, errors, cancel."""

import datetime as dt
import decimal
import ipaddress
import os
import threading
import uuid

import psycopg

DSN = f"host=127.0.0.1 port={os.environ['TARN_PORT']} user=tarn dbname=tarn"
UTC = dt.timezone.utc

ROW = {
    "k": 1,
    "b": True,
    "i2": -7,
    "i4": 2_000_000_000,
    "i8": -(2**62),
    "f4": 1.5,
    "f8": -2.25e300,
    "d": decimal.Decimal("1234567890.12"),
    "t": "ünïcödé 'quoted' \\ text",
    "by": b"\x00\xff\x10",
    "da": dt.date(1969, 7, 20),
    "ti": dt.time(23, 59, 59, 123456),
    "ts": dt.datetime(2026, 2, 28, 12, 30, 1, 5),
    "tz": dt.datetime(1901, 1, 1, tzinfo=UTC),
    "u": uuid.UUID("12345678-1234-5678-1234-567812345678"),
    "iv": dt.timedelta(days=40, hours=-30, microseconds=7),
    "ip": ipaddress.ip_interface("10.1.2.3/8"),
    "ip6": ipaddress.ip_address("fe80::a"),
}
COLUMNS = list(ROW)
DDL = """CREATE TABLE kinds (k bigint PRIMARY KEY, b boolean, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision, d decimal(18,2), t text,
 by bytea, da date, ti time, ts timestamp, tz timestamptz, u uuid, iv interval, ip inet, ip6 inet)"""


def check(name, is_, want):
    assert is_ == want, f"{name}: {is_!r}, want {want!r}"


def types(connection):
    connection.execute(DDL)
    names, marks = ", ".join(COLUMNS), ", ".join(["%s"] * len(COLUMNS))
    for key, binary in [(1, False), (2, True)]:
        values = [key, *list(ROW.values())[1:]]
        # %b sends parameters binary, %t as text.
        style = marks.replace("%s", "%b" if binary else "%t")
        cursor = connection.execute(f"INSERT INTO kinds ({names}) VALUES ({style})", values)
        check("rows inserted", cursor.rowcount, 1)
        for read_binary in (False, True):
            with connection.cursor(binary=read_binary) as cursor:
                row = cursor.execute(f"SELECT {names} FROM kinds WHERE k = %s", [key]).fetchone()
                for column, is_, want in zip(COLUMNS, row, values):
                    check(f"{column}, sent {'binary' if binary else 'text'}, read {'binary' if read_binary else 'text'}", is_, want)
    connection.execute("INSERT INTO kinds (k) VALUES (%s)", [3])
    row = connection.execute(f"SELECT {names} FROM kinds WHERE k = 3").fetchone()
    check("NULLs", row, (3, *[None] * (len(COLUMNS) - 1)))


def every_type_is_found_again(connection):
    """Parameters in predicates, hot and delivered."""
    for stage in ("hot", "delivered"):
        for column in COLUMNS[1:]:
            row = connection.execute(f"SELECT count(*) FROM kinds WHERE {column} = %s", [ROW[column]]).fetchone()
            check(f"{stage}: {column} = its value", row, (2,))
        connection.execute("CALL tarn.deliver('kinds')")


def keyed(connection):
    connection.execute("CREATE TABLE counters (id bigint, part text, n bigint, PRIMARY KEY (id, part))")
    for round_ in range(8):  # psycopg prepares after the fifth
        for id_ in range(5):
            connection.execute("UPSERT INTO counters VALUES (%s, %s, %s)", [id_, "a", round_])
        check("update", connection.execute("UPDATE counters SET n = n + %s WHERE id = %s AND part = %s", [10, 3, "a"]).rowcount, 1)
        check("get", connection.execute("SELECT n FROM counters WHERE id = %s AND part = %s", [3, "a"]).fetchone(), (round_ + 10,))
    check("update of nothing", connection.execute("UPDATE counters SET n = 0 WHERE id = %s AND part = %s", [99, "a"]).rowcount, 0)
    check("conflict", connection.execute("INSERT INTO counters VALUES (%s, 'a', 0) ON CONFLICT DO NOTHING", [3]).rowcount, 0)
    for round_ in range(8):
        try:
            connection.execute("INSERT INTO counters VALUES (%s, %s, %s)", [3, "a", round_])
            raise AssertionError("a key was inserted twice")
        except psycopg.errors.UniqueViolation as error:
            check("constraint", (error.sqlstate, error.diag.message_detail), ("23505", "Key (id, part)=(3, a) already exists."))
    upsert = "INSERT INTO counters VALUES (%s, 'a', %s) ON CONFLICT (id, part) DO UPDATE SET n = counters.n + excluded.n RETURNING n"
    check("upsert", [connection.execute(upsert, [3, 5]).fetchone(), connection.execute(upsert, [31, 5]).fetchone()], [(22,), (5,)])
    check("delete", connection.execute("DELETE FROM counters WHERE id = %s AND part = %s", [3, "a"]).rowcount, 1)
    check("partition", len(connection.execute("SELECT * FROM counters WHERE id = %s", [2]).fetchall()), 1)
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO counters VALUES (%s, %s, %s)", [(7, f"p{idx}", idx) for idx in range(100)])
    check("executemany", connection.execute("SELECT count(*), sum(n) FROM counters WHERE id = 7").fetchone(), (100, 4950))
    check("by predicate", connection.execute("UPDATE counters SET n = -n WHERE n >= %s AND id = 7", [50]).rowcount, 50)
    check("sum", connection.execute("SELECT sum(n) FROM counters WHERE id = 7").fetchone(), (1225 - 3725,))
    check("insert select", connection.execute("INSERT INTO counters SELECT id + 100, part, n FROM counters WHERE id = 7").rowcount, 100)


def copy(connection):
    connection.execute("CREATE TABLE copied (id bigint PRIMARY KEY, name text, at timestamptz)")
    with connection.cursor() as cursor:
        with cursor.copy("COPY copied (id, name, at) FROM STDIN") as rows:
            for id_ in range(10_000):
                rows.write_row((id_, None if id_ % 7 == 0 else f"tab\tnew\nline\\{id_}", dt.datetime(2026, 1, 1, tzinfo=UTC)))
        check("copy in", cursor.rowcount, 10_000)
        with cursor.copy("COPY (SELECT id, name FROM copied WHERE id < 8 ORDER BY id) TO STDOUT") as rows:
            rows.set_types(["int8", "text"])
            out = list(rows.rows())
        check("copy out", out[:2] + out[7:], [(0, None), (1, "tab\tnew\nline\\1"), (7, None)])
    kinds = ["int8", "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "bytea", "date", "time", "timestamp", "timestamptz", "uuid", "interval", "inet", "inet"]
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY kinds ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)") as rows:
            rows.set_types(kinds)
            for key in range(100, 1_100):
                rows.write_row((key, *list(ROW.values())[1:]))
            rows.write_row((1_100, *[None] * (len(COLUMNS) - 1)))
        check("binary copy in", cursor.rowcount, 1_001)
        with cursor.copy(f"COPY (SELECT {', '.join(COLUMNS)} FROM kinds WHERE k >= 100 ORDER BY k) TO STDOUT (FORMAT BINARY)") as rows:
            rows.set_types(kinds)
            out = list(rows.rows())
        check("binary copy out", (len(out), out[0], out[-1]), (1_001, (100, *list(ROW.values())[1:]), (1_100, *[None] * (len(COLUMNS) - 1))))
        cursor.execute("DELETE FROM kinds WHERE k >= 100")
    try:
        with connection.cursor() as cursor, cursor.copy("COPY copied FROM STDIN") as rows:
            rows.write("20000\tfine\t2026-01-01 00:00:00Z\n20001\tbad\tnot-a-time\n")
        raise AssertionError("a bad line was taken")
    except psycopg.Error as error:
        assert "line 2" in str(error) and "at" in str(error), error
    check("nothing half written", connection.execute("SELECT count(*) FROM copied WHERE id >= 20000").fetchone(), (0,))


def cursor(_):
    """A named cursor lives in a transaction."""
    with psycopg.connect(DSN) as connection:
        with connection.cursor(name="big") as cursor:
            cursor.itersize = 1000
            cursor.execute("SELECT id FROM copied ORDER BY id")
            check("cursor", [row[0] for row in cursor], list(range(10_000)))


def errors(connection):
    for sql, state in [("SELECT * FROM nope", "42P01"), ("SELECT nope FROM kinds", "42703"), ("SELEC", "42601"), ("SELECT 1/0", "22012")]:
        try:
            connection.execute(sql)
            raise AssertionError(f"{sql} succeeded")
        except psycopg.Error as error:
            check(sql, error.sqlstate, state)
    check("still usable", connection.execute("SELECT 1").fetchone(), (1,))


def cancel(connection):
    # Canceled at once and again until it takes effect: no time is assumed.
    sql = "SELECT sum(a.id + b.id + c.id) FROM copied a JOIN copied b ON a.id % 2 = b.id % 2 JOIN copied c ON b.id % 2 = c.id % 2"
    done = threading.Event()

    def keep_cancelling():
        while not done.wait(0.05):
            connection.cancel()

    thread = threading.Thread(target=keep_cancelling)
    thread.start()
    try:
        connection.execute(sql)
        raise AssertionError("the query was not cancelled")
    except psycopg.errors.QueryCanceled as error:
        check("cancel", error.sqlstate, "57014")
    finally:
        done.set()
        thread.join()
    check("usable after cancel", connection.execute("SELECT 1").fetchone(), (1,))


def transaction(_):
    """What is acknowledged stays; what cannot be promised is refused, not ignored."""
    with psycopg.connect(DSN) as connection:
        connection.execute("INSERT INTO counters VALUES (500, 'a', 1)")
        connection.rollback()
        count = connection.execute("SELECT count(*) FROM counters WHERE id = 500").fetchone()[0]
        check("rolled back", count, 0)


def job_queue(connection):
    """Workers that take jobs from a table: each job is one worker's."""
    n_jobs, n_workers = 120, 4
    connection.execute("CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL DEFAULT 'new', worker int)")
    connection.execute("INSERT INTO jobs (id) SELECT generate_series(1, %s)", [n_jobs])
    take = """UPDATE jobs SET state = 'taken', worker = %s
        WHERE id = (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id"""
    taken = [[] for _ in range(n_workers)]
    failed = []

    def work(at):
        try:
            with psycopg.connect(DSN, autocommit=True) as own:
                while row := own.execute(take, [at]).fetchone():
                    taken[at].append(row[0])
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    workers = [threading.Thread(target=work, args=[at]) for at in range(n_workers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    check("workers that failed", failed, [])
    check("jobs taken, each once", sorted(job for jobs in taken for job in jobs), list(range(1, n_jobs + 1)))
    for at, jobs in enumerate(taken):
        rows = connection.execute("SELECT id FROM jobs WHERE worker = %s AND state = 'taken' ORDER BY id", [at]).fetchall()
        check(f"jobs of worker {at}", [row[0] for row in rows], sorted(jobs))


def main():
    with psycopg.connect(DSN, autocommit=True) as connection:
        for test in (types, every_type_is_found_again, keyed, copy, cursor, errors, cancel, transaction, job_queue):
            test(connection)
            print(f"{test.__name__}: passed", flush=True)


main()
