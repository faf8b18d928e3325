"""PostgreSQL's own benchmark as a test: its script writes four tables in a transaction, so the sums of their balances are one number at every moment,
whatever ran beside it, and after a kill -9."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import psycopg

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from server import Options, Server  # noqa: E402

BRANCHES, ACCOUNTS = 2, 2_000
TABLES = f"""
CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler text);
CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler text);
CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler text) WITH (partitioning = 'hash', tablets = 4);
CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler text);
INSERT INTO pgbench_branches SELECT x, 0, '' FROM generate_series(1, {BRANCHES}) AS s(x);
INSERT INTO pgbench_tellers SELECT x, (x - 1) / 10 + 1, 0, '' FROM generate_series(1, {BRANCHES * 10}) AS s(x);
INSERT INTO pgbench_accounts SELECT x, (x - 1) / {ACCOUNTS // BRANCHES} + 1, 0, '' FROM generate_series(1, {ACCOUNTS}) AS s(x);
"""
SUMS = """SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches),
    (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM pgbench_history)"""
# As pgbench's own, but for the number of accounts, which it takes from the scale.
SCRIPT = f"""
\\set aid random(1, {ACCOUNTS})
\\set bid random(1, {BRANCHES})
\\set tid random(1, {BRANCHES * 10})
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""


def initialise(server):
    command = ["pgbench", "-i", "-q", "-h", "127.0.0.1", "-p", str(server.port), "-U", "tarn", "tarn"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout


def start(server, script, *arguments):
    command = ["pgbench", "-n", "-h", "127.0.0.1", "-p", str(server.port), "-U", "tarn", "-f", script, "--max-tries=1000"]
    command += [*arguments, "tarn"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def checked(server):
    """How many transactions are in, all of them whole."""
    with psycopg.connect(server.dsn, autocommit=True) as c:
        sums = c.execute(SUMS).fetchone()
        assert len(set(sums)) == 1, sums
        return c.execute("SELECT count(*) FROM pgbench_history").fetchone()[0]


def main():
    with tempfile.TemporaryDirectory(dir=os.environ["TARN_TEST_DIR"]) as folder:
        folder = pathlib.Path(folder)
        script = str(folder / "transfers.sql")
        pathlib.Path(script).write_text(SCRIPT)
        tarn = pathlib.Path(os.environ["TARN"])
        with Server(tarn, folder, Options(("--background", "false"), nice=0)) as server:
            # Its own tables, as it makes them: dropped, made, filled by COPY, vacuumed, and given keys.
            initialise(server)
            with psycopg.connect(server.dsn, autocommit=True) as c:
                assert c.execute("SELECT count(*) FROM pgbench_accounts").fetchone()[0] == 100_000
                c.execute("DROP TABLE pgbench_branches, pgbench_tellers, pgbench_accounts, pgbench_history")
                c.execute(TABLES)
            n_done = 0
            for mode in ("simple", "extended", "prepared"):
                ran = start(server, script, "-c", "4", "-t", "10", "-M", mode)
                output = ran.communicate(timeout=300)[0]
                assert ran.returncode == 0 and "number of failed transactions: 0" in output, output
                n_done += 40
                assert checked(server) == n_done, mode
            ran = start(server, script, "-c", "4", "-T", "60", "-M", "prepared")
            time.sleep(2)
            assert checked(server) > n_done
            server.signal(signal.SIGKILL)
            ran.communicate(timeout=300)
            server.kill()
            server.start()
            n_kept = checked(server)
            assert n_kept > n_done
            with psycopg.connect(server.dsn, autocommit=True) as c:
                for table in ("accounts", "branches", "tellers", "history"):
                    c.execute(f"CALL tarn.deliver('pgbench_{table}')")
            assert checked(server) == n_kept
    print(f"pgbench: {n_kept} transactions, all of them whole")


main()
