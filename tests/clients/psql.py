"""Does a real psql work? Each case is what is typed, and what must stand in the output (stdout and stderr together)."""

import os
import subprocess
import sys

PSQL = ["psql", "-X", "-h", "127.0.0.1", "-p", os.environ["TARN_PORT"], "-U", "tarn", "-d", "tarn"]

CASES = [
    ("CREATE TABLE trips (city text, at timestamptz, rider text, fare decimal(10,2), PRIMARY KEY (city, at))", ["CREATE TABLE"]),
    ("INSERT INTO trips VALUES ('Bern', '2026-11-01 08:00:00Z', 'ada', 12.50), ('Bern', '2026-11-01 09:00:00Z', 'bob', 7.20)", ["INSERT 0 2"]),
    ("SELECT rider, fare FROM trips ORDER BY fare", ["rider", "7.20", "12.50", "(2 rows)"]),
    ("UPDATE trips SET fare = 13.00 WHERE city = 'Bern' AND at = '2026-11-01 08:00:00Z'", ["UPDATE 1"]),
    ("DELETE FROM trips WHERE rider = 'nobody'", ["DELETE 0"]),
    ("SELECT sum(fare) FROM trips", ["20.20"]),
    # What psql asks of the catalog.
    ("\\dt", ["trips", "table"]),
    ("\\d", ["trips"]),
    ("\\d trips", ["city", "text", "at", "timestamp with time zone", "fare", "numeric"]),
    ("CREATE VIEW busy AS SELECT city, count(*) AS n FROM trips GROUP BY city", ["CREATE VIEW"]),
    ("COMMENT ON COLUMN busy.n IS 'how many'", ["COMMENT"]),
    ("COMMENT ON TABLE trips IS 'as they end'", ["COMMENT"]),
    ("\\dv", ["busy", "view"]),
    ("\\d+ busy", ["how many", "View definition", "SELECT city, count(*) AS n FROM trips GROUP BY city;"]),
    ("\\d+ trips", ["trips_pkey"]),
    ("\\dt+", ["as they end"]),
    ("DROP TABLE trips", ["2BP01", "view busy depends on trips"]),
    ("DROP VIEW busy", ["DROP VIEW"]),
    ("\\l", ["tarn"]),
    ("\\dn", ["public"]),
    ("\\conninfo", ["tarn"]),
    ("\\du", ["Role name"]),
    ("SELECT version()", ["Tarn"]),
    ("SHOW TABLES", ["trips"]),
    ("EXPLAIN SELECT * FROM trips WHERE city = 'Bern'", ["rows"]),
    # COPY both ways, through psql's own client side.
    ("COPY trips FROM STDIN WITH (FORMAT csv)\nBern,2026-11-02 08:00:00Z,cy,1.00\nChur,2026-11-02 08:00:00Z,,2.00\n\\.", ["COPY 2"]),
    ("COPY (SELECT city, rider, fare FROM trips WHERE city = 'Chur') TO STDOUT WITH (FORMAT csv, HEADER)", ["city,rider,fare", "Chur,,2.00"]),
    ("COPY (SELECT city, rider, fare FROM trips WHERE city = 'Chur') TO STDOUT", ["Chur\t\\N\t2.00"]),
    # Errors: SQLSTATE, the thing, the remedy.
    ("SELECT * FROM nothing", ["42P01", "nothing"]),
    ("SELECT colour FROM trips", ["42703", "colour"]),
    ("SELEC 1", ["42601"]),
    ("SELECT 1/0", ["22012"]),
    ("INSERT INTO trips VALUES (NULL, '2026-11-01 08:00:00Z', 'x', 1)", ["23502", "city"]),
    ("INSERT INTO trips VALUES ('Bern', 'yesterday-ish', 'x', 1)", ["22007"]),
    ("INSERT INTO trips (city, at, fare) VALUES ('Bern', '2026-11-01 08:00:00Z', 123456789012.00)", ["22003"]),
    ("CREATE TABLE trips (a int PRIMARY KEY)", ["42P07", "trips"]),
    ("CREATE TABLE t2 (a int, __a int)", ["42939", "__"]),
    ("CREATE TABLE t2 (a int PRIMARY KEY) WITH (colour = 'red')", ["colour", "delivery"]),
    ("DROP TABLE nothing", ["42P01"]),
    ("DROP TABLE IF EXISTS nothing", ["DROP TABLE"]),
    ("COPY trips FROM STDIN WITH (FORMAT csv)\nBern,2026-11-02 08:00:00Z,cy,1.00\nBern,bad-time,cy,1.00\n\\.", ["ERROR", "line 2", "at"]),
    # Nothing of the failed statements is there.
    ("SELECT count(*) AS n FROM trips", [" 4"]),
    # Several statements in one message, and an error that ends it.
    ("SELECT 1 AS one\\; SELECT 2 AS two", ["one", "two"]),
    # Tarn's own.
    ("CALL tarn.deliver('trips')", []),
    ("SELECT table_name FROM tarn.files", ["trips"]),
    ("SELECT table_name FROM tarn.tables", ["trips"]),
    ("SELECT count(*) > 0 AS some FROM tarn.blocks", ["t"]),
    ("SELECT count(*) > 0 AS some FROM tarn.deliveries", ["t"]),
    ("SELECT count(*) > 0 AS some FROM tarn.tablets", ["t"]),
    ("SELECT sum(fare) FROM trips", ["23.20"]),
    ("DROP TABLE trips", ["DROP TABLE"]),
    ("\\dt", []),
]


def run(text):
    script = "\\set VERBOSITY verbose\n" + text + (";\n" if not text.startswith("\\") and not text.endswith("\\.") else "\n")
    if text.startswith("COPY") and "\n" in text:
        statement, data = text.split("\n", 1)
        script = f"\\set VERBOSITY verbose\n{statement};\n{data}\n"
    done = subprocess.run(PSQL, input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.stdout


def main():
    failures = 0
    for text, wanted in CASES:
        output = run(text)
        missing = [part for part in wanted if part not in output]
        crashed = "server closed the connection" in output
        unexpected = "ERROR" in output and not any(part == "ERROR" or part[:1].isdigit() or part == "PRIMARY KEY" or part == "colour" for part in wanted)
        if missing or crashed or unexpected:
            failures += 1
            print(f"--- {text}\nmissing: {missing}\n{output}")
    print(f"{len(CASES) - failures} of {len(CASES)} passed")
    sys.exit(1 if failures else 0)


main()
