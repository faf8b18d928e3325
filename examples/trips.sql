-- The way of a row: written, read by key, delivered to Parquet, changed, and read together with what was delivered.
--   psql -h 127.0.0.1 -p 5433 -U tarn -f examples/trips.sql
\set ON_ERROR_STOP on

CREATE TABLE example_trips (
    city text, at timestamptz, rider text, fare numeric(10, 2),
    PRIMARY KEY (city, at)
) WITH (delivery = '2 minutes', tokens = 'rider');

-- A key is there once: an INSERT of it is refused, an UPSERT replaces the row.
INSERT INTO example_trips
SELECT CASE WHEN n % 3 = 0 THEN 'Bern' ELSE 'Chur' END, to_timestamp(1793491200 + n * 60), 'rider ' || (n % 50), n % 40 + 0.5
FROM generate_series(1, 10000) AS s(n);

-- By key: the row engine answers.
SELECT * FROM example_trips WHERE city = 'Bern' AND at = '2026-11-01 00:03Z';

-- Delivered now instead of within two minutes, and then changed: the lake's row is hidden by the recent one.
CALL tarn.deliver('example_trips');
UPDATE example_trips SET fare = 100 WHERE city = 'Bern' AND at = '2026-11-01 00:03Z';

-- One statement over both, at one moment.
SELECT city, count(*), sum(fare), max(fare) FROM example_trips GROUP BY city ORDER BY city;

-- Words are looked for in blooms first; EXPLAIN names the access path and why.
EXPLAIN SELECT count(*) FROM example_trips WHERE matches(rider, 'rider 7');
SELECT count(*) FROM example_trips WHERE matches(rider, 'rider 7');

-- The Parquet behind the table, readable by any engine.
SELECT path, n_rows, size_bytes FROM tarn.files WHERE table_name = 'example_trips';

DROP TABLE example_trips;
