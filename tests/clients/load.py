"""Does `tarn load`, `tarn sql` and HTTP work as a user types them? CSV, NDJSON and Parquet in; table, CSV, JSON and Parquet out; errors."""

import json
import os
import pathlib
import subprocess
import urllib.request

import duckdb

TARN = os.environ["TARN"]
FOLDER = pathlib.Path(os.environ["TARN_TEST_DIR"])


def tarn(*arguments, input=None, fails=False):
    command = [TARN, *map(str, arguments)]
    done = subprocess.run(command, input=input, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    assert (done.returncode != 0) == fails, f"{command}: {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}"
    return done.stdout, done.stderr.decode()


def sql(text, *more):
    return tarn("sql", "-c", text, "--output", "csv", *more)[0].decode().splitlines()[1:]


def write(name, text):
    (FOLDER / name).write_text(text)
    return FOLDER / name


def expect(is_, want):
    assert is_ == want, f"{is_!r}, want {want!r}"


def main():
    tarn("sql", "-c", "CREATE TABLE trips (city text, id bigint, fare decimal(10,2), at timestamptz, day date, ok boolean, raw bytea, note text, PRIMARY KEY (city, id))")
    header = "city,id,fare,at,day,ok,raw,note\n"
    good = write("good.csv", header + 'Bern,1,12.50,2026-11-01T08:00:00Z,2026-11-01,true,\\x00ff,"a ""quoted"", text\nof two lines"\nChur,2,,,,,,\n')
    _, told = tarn("load", good, "--table", "trips")
    assert "loaded 2 rows" in told, told
    tarn("sql", "-c", "CREATE SCHEMA sales; CREATE TABLE sales.trips (city text PRIMARY KEY, id bigint)")
    _, told = tarn("load", write("sales.csv", "city,id\nBern,1\n"), "--table", "sales.trips")
    assert "loaded 1 row" in told, told
    tarn("load", FOLDER / "sales.csv", "--table", "sales.made", "--create", "--key", "city")
    expect(sql("SELECT t.id, m.id FROM sales.trips t JOIN sales.made m ON m.city = t.city"), ["1,1"])
    tarn("sql", "-c", "DROP SCHEMA sales CASCADE")
    expect(sql("SELECT fare, ok, day FROM trips WHERE id = 1"), ["12.50,t,2026-11-01"])
    expect(sql("SELECT count(*) FROM trips WHERE note IS NULL AND fare IS NULL"), ["1"])

    lines = '{"city":"Bern","id":3,"fare":1.25,"note":{"nested":[1,2]}}\n{"id":4,"city":"Zug","ok":false,"at":"2026-11-02 08:00:00Z"}\n'
    tarn("load", "-", "--format", "ndjson", "--table", "trips", input=lines.encode())
    expect(sql("SELECT sum(fare), count(*) FROM trips"), ["13.75,4"])

    parquet = FOLDER / "more.parquet"
    duckdb.sql("SELECT 'Basel' AS city, i AS id, (i / 4)::DECIMAL(12,2) AS fare FROM range(100, 50100) t(i)").write_parquet(str(parquet))
    tarn("load", parquet, "--table", "trips")
    expect(sql("SELECT count(*), min(id), max(id) FROM trips WHERE city = 'Basel'"), ["50000,100,50099"])
    tarn("load", parquet, "--table", "made", "--create", "--key", "city,id")
    expect(sql("SELECT count(*), sum(fare) FROM made"), sql("SELECT count(*), sum(fare) FROM trips WHERE city = 'Basel'"))

    # Rows that are there: refused, unless one says what becomes of them.
    _, told = tarn("load", good, "--table", "trips", fails=True)
    assert "23505" in told and "Key (city, id)=(Bern, 1) already exists" in told and "--on-conflict skip" in told, told
    again = write("again.csv", header + "Bern,1,99.00,,,,,\nBern,9,9.00,,,,,\n")
    tarn("load", again, "--table", "trips", "--on-conflict", "skip")
    expect(sql("SELECT fare FROM trips WHERE city = 'Bern' AND id IN (1, 9) ORDER BY id"), ["12.50", "9.00"])
    tarn("load", again, "--table", "trips", "--on-conflict", "replace")
    expect(sql("SELECT fare FROM trips WHERE city = 'Bern' AND id = 1"), ["99.00"])
    tarn("load", good, "--table", "trips", "--on-conflict", "replace")
    tarn("sql", "-c", "DELETE FROM trips WHERE city = 'Bern' AND id = 9")

    # A bad line names file, line and column; nothing of it is stored.
    for text, wanted in [
        ("Genf,10,1.00,,,,,\nGenf,eleven,1.00,,,,,\n", "line 3, column id: 'eleven' is not a bigint"),
        ("Genf,10,1.00\n", "line 2: 3 columns, want 8"),
        ("Genf,10,1.00,someday,,,,\n", "line 2, column at: 'someday' is not a timestamptz"),
        ("Genf,,1.00,,,,,\n", "line 2, column id: is empty, but the column is NOT NULL"),
    ]:
        bad = write("bad.csv", header + text)
        _, told = tarn("load", bad, "--table", "trips", fails=True)
        assert f"{bad}" in told and wanted in told, told
    expect(sql("SELECT count(*) FROM trips WHERE city = 'Genf'"), ["0"])
    _, told = tarn("load", good, "--table", "nothing", fails=True)
    assert "42P01" in told and "nothing" in told, told
    _, told = tarn("load", FOLDER / "absent.csv", "--table", "trips", fails=True)
    assert "absent.csv" in told, told

    # With a key a load goes on where it broke off, also into a table that would keep rows twice.
    tarn("sql", "-c", "CREATE TABLE log (id bigint, text text) WITH (append_only = true)")
    lines = "".join(f"{i},line {i} {'x' * 1000}\n" for i in range(40_000))
    broken = write("log.csv", "id,text\n" + lines + "nine,x\n")
    named = ("load", broken, "--table", "log", "--idempotency-key", "monday")
    _, told = tarn(*named, fails=True)
    assert "line 40002, column id" in told and "with the same --idempotency-key" in told, told
    stored = int(sql("SELECT count(*) FROM log")[0])
    assert 0 < stored < 40_000, stored
    write("log.csv", "id,text\n" + lines + "40000,x\n")
    for _ in range(2):
        _, told = tarn(*named)
        assert "loaded 40,001 rows" in told, told
        expect(sql("SELECT count(*), count(DISTINCT id) FROM log"), ["40001,40001"])
    write("log.csv", "id,text\n" + lines.replace("line 7 ", "line 8 ") + "40000,x\n")
    _, told = tarn(*named, fails=True)
    assert "22023" in told and "names a request that was made" in told, told

    # Output formats.
    query = "SELECT id, fare, note, at FROM trips WHERE city IN ('Bern', 'Chur') ORDER BY id"
    rows = [json.loads(line) for line in tarn("sql", "-c", query, "--output", "json")[0].splitlines()]
    expect([row["id"] for row in rows], [1, 2, 3])
    expect(rows[1]["note"], None)
    (FOLDER / "out.parquet").write_bytes(tarn("sql", "-c", query, "--output", "parquet")[0])
    out = duckdb.sql(f"SELECT id, fare::VARCHAR FROM '{FOLDER}/out.parquet' ORDER BY id").fetchall()
    expect(out[0][:2], (1, "12.50"))
    table = tarn("sql", "-c", query)[0].decode()
    assert "12.50" in table and "(3 rows)" in table, table
    script = write("script.sql", "-- a comment; with a semicolon\nSELECT ';' AS one;\n\\timing\nSELECT 2 AS two;\nSELECT nope;\nSELECT 3 AS three;\n")
    done, told = tarn("sql", "-f", script, fails=True)
    assert b"two" in done and b"three" not in done and "42703" in told or "nope" in told, (done, told)
    expect(tarn("sql", "--output", "csv", input=b"SELECT 1 AS a")[0].decode(), "a\n1\n")
    assert "city" in tarn("sql", "-c", "\\d trips")[0].decode()

    for path in ("livez", "readyz", "metrics"):
        with urllib.request.urlopen(f"http://{os.environ['TARN_HTTP']}/{path}", timeout=10) as answer:
            expect(answer.status, 200)
            body = answer.read().decode()
    assert "tarn" in body, body
    print("load, sql, http: passed")


main()
