"""Does asyncpg work? A pool, every type both ways in the binary forms, arrays (before which it asks what they are of), COPY both ways, pages, cursors,
nested transactions, errors."""

import asyncio
import datetime as dt
import decimal
import ipaddress
import io
import os
import uuid

import asyncpg

DSN = f"postgresql://tarn@127.0.0.1:{os.environ['TARN_PORT']}/tarn"
NOON = dt.datetime(2026, 7, 1, 12, 0, tzinfo=dt.timezone(dt.timedelta(hours=2)))
ROWS = 10_000

KINDS = """CREATE TABLE kinds (id bigint PRIMARY KEY, b boolean, i2 smallint, i4 int, f4 real, f8 double precision, d numeric(12, 2), t text, raw bytea,
    day date, clock time, plain timestamp, at timestamptz, u uuid, j json, took interval, waits interval[], ip inet, ips inet[])"""


def kind(id_):
    return (
        id_,
        id_ % 2 == 0,
        id_ % 100,
        -id_,
        1.5,
        id_ / 4,
        decimal.Decimal(id_) + decimal.Decimal("0.25"),
        None if id_ % 7 == 0 else f"text {id_}",
        bytes([0, id_ % 256, 255]),
        dt.date(2026, 2, 28),
        dt.time(23, 59, 59, 123456),
        dt.datetime(1999, 12, 31, 23, 59, 59),
        NOON + dt.timedelta(seconds=id_),
        uuid.UUID(int=id_),
        '{"a": [1, null]}',
        dt.timedelta(days=id_ % 50, seconds=-id_, microseconds=1),
        [dt.timedelta(hours=id_), None],
        ipaddress.ip_interface((id_, 8)) if id_ % 3 else ipaddress.ip_address(2**127 + id_),
        [ipaddress.ip_interface((2**64 + id_, 64)), None],
    )


async def types(c):
    await c.execute(KINDS)
    marks = ", ".join(f"${place}" for place in range(1, 20))
    await c.execute(f"INSERT INTO kinds VALUES ({marks})", *kind(3))
    assert tuple(await c.fetchrow("SELECT * FROM kinds WHERE id = $1", 3)) == kind(3)
    found = "SELECT count(*) FROM kinds WHERE at = $1 AND d = $2 AND day = $3 AND u = $4 AND f8 = $5 AND ip = $6"
    assert await c.fetchval(found, kind(3)[12], kind(3)[6], kind(3)[9], kind(3)[13], 0.75, kind(3)[17]) == 1
    await c.execute("DELETE FROM kinds")


async def copied(c):
    tag = await c.copy_records_to_table("kinds", records=(kind(id_) for id_ in range(ROWS)))
    assert tag == f"COPY {ROWS}", tag
    assert await c.fetchval("SELECT sum(id)::bigint FROM kinds") == ROWS * (ROWS - 1) // 2
    for id_ in (0, 7, 1234, ROWS - 1):
        assert tuple(await c.fetchrow("SELECT * FROM kinds WHERE id = $1", id_)) == kind(id_)
    tag = await c.copy_records_to_table("kinds", records=[(ROWS, "named")], columns=["id", "t"])
    assert tag == "COPY 1", tag
    out = io.BytesIO()
    await c.copy_from_query("SELECT * FROM kinds WHERE id < $1 ORDER BY id", 3, output=out, format="binary")
    await c.execute("DELETE FROM kinds WHERE id < 3")
    out.seek(0)
    assert await c.copy_to_table("kinds", source=out, format="binary") == "COPY 3"
    assert tuple(await c.fetchrow("SELECT * FROM kinds WHERE id = 2")) == kind(2)
    try:
        await c.copy_records_to_table("kinds", records=[(ROWS + 1, "kept?"), (None, "no key")], columns=["id", "t"])
        raise AssertionError("a row without its key was taken")
    except asyncpg.NotNullViolationError as error:
        assert "line 2" in error.context, error.context
    assert await c.fetchval("SELECT count(*) FROM kinds WHERE id > $1", ROWS) == 0


async def arrays(c):
    ids = [row["id"] for row in await c.fetch("SELECT id FROM kinds WHERE id = ANY($1) ORDER BY id", [7, 2, 99_999])]
    assert ids == [2, 7], ids
    for column, values in [("t", ["text 4", None]), ("u", [uuid.UUID(int=4)]), ("at", [kind(4)[12]]), ("d", [kind(4)[6]]), ("f8", [1.0]), ("raw", [])]:
        n = await c.fetchval(f"SELECT count(*) FROM kinds WHERE id < 10 AND {column} = ANY($1)", values)
        assert n == (1 if values else 0), (column, n)
    pairs = await c.fetch("SELECT x, y FROM unnest($1::text[], $2::int[]) AS u(x, y)", ["a", None], [1, 2])
    assert [tuple(pair) for pair in pairs] == [("a", 1), (None, 2)]
    assert await c.fetchval("SELECT $1::int[]", [1, None]) == [1, None]
    assert await c.fetchval("SELECT array_agg(t ORDER BY id) FROM kinds WHERE id IN (7, 8)") == [None, "text 8"]
    await array_columns(c)


def arrays_of(n):
    moment = kind(4)[12]
    return (n, [f"tag {n}", None, "a,b"], [n, None, -n], [n / 4], [uuid.UUID(int=n)], [moment, None], [b"\x00", b""], [f"v{n}"], [])


async def array_columns(c):
    await c.execute("CREATE TABLE bags (id int PRIMARY KEY, t text[], i int[] NOT NULL DEFAULT '{}', f float8[], u uuid[], at timestamptz[], raw bytea[], v varchar(9)[], d date[])")
    names = ["id", "t", "i", "f", "u", "at", "raw", "v", "d"]
    await c.execute("INSERT INTO bags VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)", *arrays_of(1))
    await c.executemany(f"INSERT INTO bags ({', '.join(names)}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)", [arrays_of(n) for n in range(2, 50)])
    assert await c.copy_records_to_table("bags", records=[arrays_of(n) for n in range(50, 200)], columns=names) == "COPY 150"
    assert [tuple(row) for row in await c.fetch("SELECT * FROM bags ORDER BY id")] == [arrays_of(n) for n in range(1, 200)]
    assert tuple(await c.fetchrow("SELECT * FROM bags WHERE id = $1", 7)) == arrays_of(7)
    assert await c.fetchval("SELECT id FROM bags WHERE t @> $1", ["tag 9"]) == 9
    assert await c.fetchval("SELECT id FROM bags WHERE $1 = ANY(t)", "tag 8") == 8
    assert await c.fetchval("SELECT count(*) FROM bags WHERE i && $1", [3, -5, 1000]) == 2
    assert await c.fetchval("SELECT id FROM bags WHERE i = $1", [6, None, -6]) == 6
    await c.execute("UPDATE bags SET t = $1, u = $2 WHERE id = $3", ["x"], None, 1)
    await c.execute("UPDATE bags SET i = array_append(i, $1) WHERE id = $2", 5, 1)
    assert tuple(await c.fetchrow("SELECT t, u, i FROM bags WHERE id = 1")) == (["x"], None, [1, None, -1, 5])
    out = io.BytesIO()
    await c.copy_from_table("bags", output=out, format="binary")
    await c.execute("DELETE FROM bags")
    out.seek(0)
    assert await c.copy_to_table("bags", source=out, format="binary") == "COPY 199"
    assert tuple(await c.fetchrow("SELECT * FROM bags WHERE id = 199")) == arrays_of(199)


async def pages(c):
    found = await c.fetch("SELECT id FROM kinds WHERE id > $1 ORDER BY id LIMIT $2", 10, 2)
    assert [row["id"] for row in found] == [11, 12]
    async with c.transaction():
        n = 0
        async for _ in c.cursor("SELECT id FROM kinds WHERE id >= $1", 100, prefetch=1000):
            n += 1
        assert n == ROWS - 99, n
    await c.executemany("UPDATE kinds SET t = $2 WHERE id = $1", [(id_, "changed") for id_ in range(20)])
    assert await c.fetchval("SELECT count(*) FROM kinds WHERE t = $1", "changed") == 20


async def transactions(c):
    key = uuid.uuid4()
    async with c.transaction():
        async with c.transaction():
            assert await c.fetchval("INSERT INTO kinds (id, u) VALUES ($1, $2) RETURNING u", 20_000, key) == key
    try:
        async with c.transaction():
            await c.execute("INSERT INTO kinds (id) VALUES ($1)", 20_001)
            raise KeyError
    except KeyError:
        pass
    assert await c.fetchval("SELECT count(*) FROM kinds WHERE id >= 20000") == 1


async def errors(c):
    cases = [("SELECT * FROM nothing", "42P01"), ("SELECT colour FROM kinds", "42703"), ("SELEC 1", "42601"), ("SELECT 1 / 0", "22012")]
    for sql, state in cases:
        try:
            await c.fetch(sql)
            raise AssertionError(f"{sql} succeeded")
        except asyncpg.PostgresError as error:
            assert error.sqlstate == state, error


async def main():
    pool = await asyncpg.create_pool(DSN, min_size=1, max_size=3)
    for part in (types, copied, arrays, pages, transactions, errors):
        async with pool.acquire() as c:
            await part(c)
        print(f"{part.__name__}: passed", flush=True)
    await pool.close()


asyncio.run(main())
