"""Readings of sensors, by psycopg 3: loaded by COPY, read by key and by range, summed up.

pip install "psycopg[binary]"; python examples/sensors.py
"""

import datetime as dt
import os
import random

import psycopg

START = dt.datetime(2026, 11, 1, tzinfo=dt.timezone.utc)
DSN = f"host={os.environ.get('PGHOST', '127.0.0.1')} port={os.environ.get('PGPORT', '5433')} user={os.environ.get('PGUSER', 'tarn')} dbname=tarn"


def main():
    # A statement commits by itself (docs/sql.md has what a transaction promises).
    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute("CREATE TABLE example_readings (sensor int, at timestamptz, value double precision, PRIMARY KEY (sensor, at DESC))")
        random.seed(1)
        with connection.cursor().copy("COPY example_readings FROM STDIN") as copy:
            for minute in range(2_000):
                for sensor in range(10):
                    copy.write_row((sensor, START + dt.timedelta(minutes=minute), round(random.gauss(20, 3), 3)))

        # One partition key: its rows lie together, the newest first. Executed often, such a statement is prepared.
        newest = connection.execute("SELECT at, value FROM example_readings WHERE sensor = %s ORDER BY at DESC LIMIT 3", (7,)).fetchall()
        for at, value in newest:
            print(f"sensor 7 at {at:%H:%M}: {value:.1f}")
        assert newest[0][0] == START + dt.timedelta(minutes=1_999)

        # After a delivery the same statements read Parquet and what came since.
        connection.execute("CALL tarn.deliver('example_readings')")
        connection.execute("DELETE FROM example_readings WHERE sensor = 0 AND at < %s", (START + dt.timedelta(hours=1),))
        rows = connection.execute("SELECT sensor, count(*), avg(value) FROM example_readings GROUP BY sensor ORDER BY sensor").fetchall()
        for sensor, count, mean in rows:
            print(f"sensor {sensor}: {count} readings, {mean:.2f} on average")
        assert [count for _, count, _ in rows] == [1_940] + [2_000] * 9

        connection.execute("DROP TABLE example_readings")


if __name__ == "__main__":
    main()
