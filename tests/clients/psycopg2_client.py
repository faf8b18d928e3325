"""Does psycopg2 work? It writes parameters into the text: every type so, bulk as its users do it, cursors, COPY, errors, transactions, three zones."""

import datetime as dt
import decimal
import io
import uuid

import psycopg2
import psycopg2.extras

from steps import DATABASE, HOST, PORT, USER, refused

psycopg2.extras.register_uuid()
UTC = dt.timezone.utc
NOON = dt.datetime(2026, 7, 1, 12, 0, 0, 250_000, tzinfo=dt.timezone(dt.timedelta(hours=2)))
KEY = uuid.UUID("12345678-1234-5678-1234-567812345678")
ROW = (1, True, -7, 2**40, 2.5, decimal.Decimal("12.50"), "ünï 'quoted' \\ %s", b"\x00\xff'", dt.date(2026, 2, 28), dt.time(23, 59, 59, 5), NOON, KEY, {"a": [1, None]})
COLUMNS = "id, b, i2, i8, f8, d, t, raw, day, at_time, at, u, j"


def connect(**options):
    return psycopg2.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE, **options)


def types(c):
    with c, c.cursor() as cursor:
        cursor.execute(
            """CREATE TABLE kinds2 (id bigint PRIMARY KEY, b boolean, i2 smallint, i8 bigint, f8 double precision, d numeric(10, 2), t text,
            raw bytea, day date, at_time time, at timestamptz, u uuid, j jsonb)"""
        )
        values = [psycopg2.extras.Json(value) if isinstance(value, dict) else value for value in ROW]
        cursor.execute(f"INSERT INTO kinds2 ({COLUMNS}) VALUES ({', '.join(['%s'] * len(ROW))}) RETURNING id", values)
        assert cursor.fetchone() == (1,) and cursor.statusmessage == "INSERT 0 1"
        cursor.execute(f"SELECT {COLUMNS} FROM kinds2")
        row = cursor.fetchone()
        assert (*row[:7], bytes(row[7]), *row[8:]) == ROW, row
        assert [column.type_code for column in cursor.description] == [20, 16, 21, 20, 701, 1700, 25, 17, 1082, 1083, 1184, 2950, 3802]
        for column, value in zip(COLUMNS.split(", "), values):
            cursor.execute(f"SELECT count(*) FROM kinds2 WHERE {column} = %s", [value])
            assert cursor.fetchone() == (1,), column
        cursor.execute("SELECT id FROM kinds2 WHERE id = ANY(%s) AND t IN %s AND at > %s", [[1, 2], (ROW[6], "x"), NOON - dt.timedelta(1)])
        assert cursor.fetchall() == [(1,)]
        cursor.execute("SELECT %s, %s, %s::int[], %s::text[]", [None, dt.timedelta(1, 2), [], ["a", None, 'b"']])
        assert cursor.fetchone() == (None, dt.timedelta(1, 2), [], ["a", None, 'b"'])


def bulk(c):
    rows = [(n, f"text {n}", NOON + dt.timedelta(seconds=n)) for n in range(10, 3010)]
    with c, c.cursor() as cursor:
        psycopg2.extras.execute_values(cursor, "INSERT INTO kinds2 (id, t, at) VALUES %s", rows, page_size=1000)
        psycopg2.extras.execute_batch(cursor, "UPDATE kinds2 SET d = %s WHERE id = %s", [(n, n) for n in range(10, 60)])
        cursor.executemany("INSERT INTO kinds2 (id, t) VALUES (%s, %s)", [(n, "x") for n in range(5000, 5010)])
        cursor.copy_expert("COPY kinds2 (id, t) FROM STDIN WITH (FORMAT csv)", io.StringIO("".join(f'{n},"a ""b"" {n}"\n' for n in range(6000, 7000))))
        assert cursor.rowcount == 1000
        cursor.copy_from(io.StringIO("7000\tcopied\n7001\t\\N\n"), "kinds2", columns=("id", "t"))
        out = io.StringIO()
        cursor.copy_expert("COPY (SELECT id, t FROM kinds2 WHERE id >= 7000 ORDER BY id) TO STDOUT", out)
        assert out.getvalue() == "7000\tcopied\n7001\t\\N\n"
        cursor.execute("SELECT count(*), sum(d) FROM kinds2 WHERE id >= 10")
        assert cursor.fetchone() == (4012, sum(range(10, 60)))
        cursor.execute("SELECT t FROM kinds2 ORDER BY id LIMIT %s OFFSET %s", [2, 2])
        assert cursor.fetchall() == [("text 11",), ("text 12",)]
    with c, c.cursor("pages", cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
        cursor.itersize = 500
        cursor.execute("SELECT id, t FROM kinds2 WHERE id BETWEEN 10 AND 3009 ORDER BY id")
        assert sum(1 for _ in cursor) == 3000


def transactions(c):
    with c.cursor() as cursor:
        cursor.execute("INSERT INTO kinds2 (id) VALUES (8000)")
        cursor.execute("SAVEPOINT one")
        error = refused("23505", lambda: cursor.execute("INSERT INTO kinds2 (id) VALUES (8000)"))
        assert isinstance(error, psycopg2.errors.UniqueViolation) and error.diag.constraint_name == "kinds2_pkey"
        refused("25P02", lambda: cursor.execute("SELECT 1"))
        cursor.execute("ROLLBACK TO SAVEPOINT one")
        cursor.execute("SELECT id FROM kinds2 WHERE id = 8000 FOR UPDATE")
        assert cursor.fetchall() == [(8000,)]
    c.rollback()
    c.set_session(isolation_level="REPEATABLE READ", readonly=True)
    with c, c.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM kinds2 WHERE id = 8000")
        assert cursor.fetchone() == (0,)
        cursor.execute("SHOW transaction_isolation")
        assert cursor.fetchone() == ("repeatable read",)
        refused("25006", lambda: cursor.execute("DELETE FROM kinds2"))
    c.set_session(isolation_level="DEFAULT", readonly=False)
    for sql, state in [("SELECT * FROM nothing", "42P01"), ("SELEC 1", "42601"), ("SELECT 1 / 0", "22012"), ("SELECT nosuch(1)", "42883")]:
        with c.cursor() as cursor:
            refused(state, lambda: cursor.execute(sql))
        c.rollback()
    c.autocommit = True
    with c.cursor() as cursor:
        cursor.execute("SET statement_timeout = 100")
        refused("57014", lambda: cursor.execute("SELECT pg_sleep(5)"))
        cursor.execute("LISTEN news; NOTIFY news, 'hello'")
        c.poll()
        assert [note.payload for note in c.notifies] == ["hello"]


def zones(_):
    for name, hours in [("UTC", 0), ("Europe/Zurich", 2), ("America/New_York", -4)]:
        with connect(options=f"-c TimeZone={name}") as c, c.cursor() as cursor:
            cursor.execute("SELECT at, at::date, at::text, extract(hour FROM at)::int, now() FROM kinds2 WHERE at = %s", [NOON])
            at, day, text, hour, now = cursor.fetchone()
            assert at == NOON and at.utcoffset() == dt.timedelta(hours=hours), (name, at)
            assert (day, hour) == (dt.date(2026, 7, 1), 10 + hours), (name, day, hour)
            assert text == f"2026-07-01 {10 + hours:02}:00:00.25{hours:+03}", text
            assert abs(now - dt.datetime.now(UTC)) < dt.timedelta(minutes=5)


with_all = connect()
for part in (types, bulk, transactions, zones):
    part(with_all)
    print(f"{part.__name__}: passed", flush=True)
