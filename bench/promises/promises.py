"""What Tarn's promises cost: checksums on TPC-H, limits on keyed statements, restarts and stops with thousands of tables, how long a cancelled
query goes on, how long writers wait for a split. The figures of docs/benchmarks.md, "Promises".

    promises.py --tarn PATH [--base PATH] [--part checksums keyed restart cancel split] [--json]

`--base` is another build of Tarn: the same is done to both in turns, and the ratio is printed. Times are of this machine; nothing
is asserted here.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).parent
TESTS = HERE.parents[1] / "tests"
sys.path.insert(0, str(TESTS))
sys.path.insert(0, str(TESTS / "hostile"))

from server import Options, Server  # noqa: E402
from wire import Wire  # noqa: E402

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
N_KEYS = 100_000
KEYED = {
    "read": f"\\set k random(0, {N_KEYS - 1})\nSELECT v, n FROM kv WHERE id = :k;\n",
    "upsert": f"\\set k random(0, {N_KEYS - 1})\nUPSERT INTO kv VALUES (:k, 'another value', :k);\n",
    "update": f"\\set k random(0, {N_KEYS - 1})\nUPDATE kv SET n = 7 WHERE id = :k;\n",
}


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, user and system."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Side:
    """One build: its name, its program, its folder."""

    def __init__(self, name: str, tarn: pathlib.Path, scratch: pathlib.Path):
        self.name, self.tarn, self.folder = name, tarn, scratch / name

    def server(self, part: str, *flags: str) -> Server:
        return Server(self.tarn, self.folder / part, Options(flags, nice=0))


def keyed(sides: list[Side], given: argparse.Namespace) -> dict:
    """Processor time of the server for each statement, and statements a second, by pgbench with 8 clients. The processor time is what
    limits cost; statements a second have the client's half and the disk in them."""
    servers = [side.server("keyed") for side in sides]
    figures: dict[str, dict] = {}
    try:
        for server in servers:
            server.start()
            with Wire(server.port, 120) as wire:
                wire.must("CREATE TABLE kv (id int PRIMARY KEY, v text, n int)")
                wire.must(f"INSERT INTO kv SELECT value::int, 'value', 0 FROM generate_series(0, {N_KEYS - 1}) AS s(value)")
        for name, script in KEYED.items():
            for mode in ("simple", "prepared"):
                what = f"{name}, {mode}"
                for _ in range(given.rounds):
                    for side, server in zip(sides, servers):
                        per_s, cpu_us = pgbench(server, script, mode, given.seconds)
                        row = figures.setdefault(what, {}).setdefault(side.name, {"per_s": [], "cpu_us": []})
                        row["per_s"].append(per_s)
                        row["cpu_us"].append(cpu_us)
                say(f"keyed: {what}: " + ", ".join(
                    f"{side} {statistics.median(row['cpu_us']):.1f} us CPU, {statistics.median(row['per_s']):.0f}/s"
                    for side, row in figures[what].items()
                ))
    finally:
        for server in servers:
            server.kill()
    out = {}
    for what, by_side in figures.items():
        out[what] = {side: {unit: spread(values) for unit, values in row.items()} for side, row in by_side.items()}
        if "base" in by_side:
            for unit in ("cpu_us", "per_s"):
                pairs = zip(by_side["tarn"][unit], by_side["base"][unit])
                out[what][f"{unit}_ratio"] = spread([mine / theirs for mine, theirs in pairs])
    return out


def pgbench(server: Server, script: str, mode: str, seconds: int) -> tuple[float, float]:
    file = server.folder / "pgbench.sql"
    file.write_text(script)
    before = cpu_s(server.pid)
    command = ["pgbench", "-n", "-M", mode, "-c", "8", "-j", "1", "-T", str(seconds), "-f", str(file)]
    command += ["-h", "127.0.0.1", "-p", str(server.port), "-U", "tarn", "tarn"]
    done = subprocess.run(command, capture_output=True, text=True)
    used = cpu_s(server.pid) - before
    if done.returncode != 0:
        raise SystemExit(f"pgbench failed: {done.stderr[-2000:]}")
    n = next(int(line.split(":")[1].split()[0]) for line in done.stdout.splitlines() if "actually processed" in line)
    if any("failed transactions" in line and " 0 (" not in line for line in done.stdout.splitlines()):
        raise SystemExit(f"statements failed: {done.stdout}")
    return n / seconds, used * 1e6 / n


def restart(sides: list[Side], given: argparse.Namespace) -> dict:
    """`--tables` tables with a row each: CREATE, restart after kill -9, stop, start after that stop, DROP of all."""
    out = {}
    for side in sides:
        server = side.server("restart")
        row = out[side.name] = {}
        server.start(600)
        creates = each(server, [f"CREATE TABLE t{n} (id int PRIMARY KEY, v text)" for n in range(given.tables)])
        row["create_ms"] = of_many(creates)
        each(server, [f"INSERT INTO t{n} VALUES (1, 'one')" for n in range(given.tables)])
        server.kill()
        row["start_after_kill_s"] = started(server)
        each(server, [f"INSERT INTO t{n} VALUES (2, 'two')" for n in range(given.tables)])
        began = time.monotonic()
        code = server.stop(600)
        row["stop_s"], row["stop_code"] = time.monotonic() - began, code
        row["start_after_stop_s"] = started(server)
        row["rss_mib"] = server.rss_bytes() / (1 << 20)
        began = time.monotonic()
        server.stop(600)
        row["idle_stop_s"] = time.monotonic() - began
        server.start(600)
        drops = each(server, [f"DROP TABLE t{n}" for n in range(1, given.drops + 1)])
        row["drop_ms"] = of_many(drops)
        server.kill()
        row["start_after_drops_s"] = started(server)
        server.kill()
        say(f"restart: {side.name}: {json.dumps(row)}")
    return out


def started(server: Server) -> float:
    began = time.monotonic()
    server.start(600)
    took = time.monotonic() - began
    with Wire(server.port, 120) as wire:
        wire.must("SELECT v FROM t0 WHERE id = 1")
    return took


def each(server: Server, statements: list[str]) -> list[float]:
    took = []
    with Wire(server.port, 600) as wire:
        for idx, statement in enumerate(statements):
            began = time.monotonic()
            wire.must(statement)
            took.append(time.monotonic() - began)
            if idx % 500 == 499:
                say(f"restart: {statement.split('(')[0]}: {idx + 1} of {len(statements)}, {statistics.median(took[-500:]) * 1000:.1f} ms each")
    return took


def of_many(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    tenth = max(1, len(seconds) // 10)
    return {
        "median": statistics.median(ordered) * 1000,
        "p99": ordered[len(ordered) * 99 // 100] * 1000,
        "first_tenth": statistics.median(seconds[:tenth]) * 1000,
        "last_tenth": statistics.median(seconds[-tenth:]) * 1000,
    }


BIG = "(SELECT value AS v, value % 1000 AS g, 'text ' || value AS s FROM generate_series(1, 30000000) AS s(value))"
# Each would run for minutes: an operator, and a statement that is busy in it when it is cancelled.
LONG = {
    "generate_series": "SELECT count(*) FROM generate_series(1, 100000000000) AS s(value)",
    "filter": "SELECT count(*) FROM big a WHERE regexp_like(repeat(s, 20), '(9.*){6}') AND s LIKE '%9%9%9%'",
    "cross join": "SELECT count(*) FROM big a, big b WHERE a.v + b.v = 17",
    "nested loop join": "SELECT count(*) FROM big a JOIN big b ON a.v < b.v AND a.s > b.s",
    "hash join": "SELECT count(*) FROM big a JOIN big b ON a.g = b.g",
    "hash join with a filter": "SELECT count(*) FROM big a JOIN big b ON a.g = b.g AND a.v + b.v = -1",
    "left join": "SELECT count(*) FROM big a LEFT JOIN big b ON a.g = b.g AND a.v > b.v + 10",
    "not exists": "SELECT count(*) FROM big a WHERE NOT EXISTS (SELECT 1 FROM big b WHERE b.g = a.g AND b.v + a.v = -1)",
    "sort": f"SELECT s FROM {BIG} ORDER BY s DESC, v OFFSET 29999999",
    "top": f"SELECT s FROM {BIG} ORDER BY reverse(s) || s DESC LIMIT 10",
    "hash aggregate": f"SELECT count(*) FROM (SELECT s, count(*) FROM {BIG} GROUP BY s)",
    "distinct aggregate": f"SELECT g, count(DISTINCT s) FROM {BIG} GROUP BY g",
    "array_agg": f"SELECT g, array_length(array_agg(s ORDER BY s)) FROM {BIG} GROUP BY g",
    "window": f"SELECT max(r) FROM (SELECT row_number() OVER (PARTITION BY g ORDER BY s) r FROM {BIG})",
    "window with a frame": "SELECT max(m) FROM (SELECT sum(v) OVER (ORDER BY v ROWS BETWEEN 1000 PRECEDING AND CURRENT ROW) m FROM " + BIG + ")",
    "window without end": "SELECT max(m) FROM (SELECT max(s) OVER (ORDER BY v ROWS BETWEEN 1000 PRECEDING AND 1000 FOLLOWING) m FROM big a JOIN (SELECT * FROM generate_series(1, 100) AS s(value)) ON true)",
    "recursive": "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 1000000000) SELECT max(n) FROM r",
    "recursive join": "WITH RECURSIVE r AS (SELECT 1::bigint n UNION ALL SELECT b.v FROM r JOIN big b ON b.g = r.n % 1000 WHERE r.n > 0) SELECT count(*) FROM r",
    "union": f"SELECT count(*) FROM (SELECT s FROM {BIG} UNION SELECT s || 'x' FROM {BIG})",
    "except": f"SELECT count(*) FROM (SELECT s FROM {BIG} EXCEPT SELECT s || 'x' FROM {BIG})",
    "long texts": "SELECT sum(length(repeat(s, 2000))) FROM big",
    "regular expressions": "SELECT count(*) FROM big WHERE regexp_replace(repeat(s, 200), '(.*)(.*)9', 'x') = s",
    "update": "UPDATE big SET s = s || 'x' WHERE v % 2 = 0 AND regexp_like(repeat(s, 100), '(9.*){6}')",
    "delete": "DELETE FROM big WHERE s = 'nothing' OR regexp_like(repeat(s, 100), '(x.*){6}')",
    "insert select": "INSERT INTO big SELECT v + 10000000, g, s FROM big WHERE regexp_like(repeat(s, 100), '(x.*){6}')",
    "rows to a slow client": "SELECT * FROM big a, big b",
}


def cancel(sides: list[Side], given: argparse.Namespace) -> dict:
    """Each statement is cancelled after a second. `told_ms`: until the client has its error. `stopped_ms`: until the server uses less than a
    fifth of a core, by samples of 100 ms."""
    out = {}
    for side in sides:
        server = side.server("cancel", "--query-memory-bytes", "2GiB")
        row = out[side.name] = {}
        with server:
            with Wire(server.port, 600) as wire:
                wire.must("CREATE TABLE big (v bigint PRIMARY KEY, g bigint, s text)")
                wire.must("INSERT INTO big SELECT value, value % 1000, 'text ' || value FROM generate_series(1, 1000000) AS s(value)")
            for name, statement in LONG.items():
                row[name] = cancelled(server, statement)
                say(f"cancel: {side.name}: {name}: {json.dumps(row[name])}")
    return out


def cancelled(server: Server, statement: str) -> dict:
    import psycopg

    with psycopg.connect(server.dsn, autocommit=True) as connection:
        ended: dict[str, object] = {}

        def run() -> None:
            try:
                with connection.cursor() as cursor:
                    cursor.execute(statement)
                ended["with"] = "an answer"
            except psycopg.Error as error:
                ended["with"] = error.sqlstate
            ended["at"] = time.monotonic()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(1.0)
        if not thread.is_alive():
            return {"ended_before": ended["with"]}
        began = time.monotonic()
        connection.cancel_safe()
        thread.join(120)
        if thread.is_alive():
            return {"not_ended_after_s": 120}
        at, used = time.monotonic(), cpu_s(server.pid)
        while time.monotonic() < began + 120:
            time.sleep(0.1)
            now = cpu_s(server.pid)
            if now - used < 0.02:
                break
            at, used = time.monotonic(), now
        return {"told_ms": (ended["at"] - began) * 1000, "with": ended["with"], "stopped_ms": (at - began) * 1000}


NO_CACHES = {
    "TARN_METASTORE_CACHE_BYTES": "0",
    "TARN_FOOTER_CACHE_BYTES": "0",
    "TARN_CACHE_PAGES": "off",
    "TARN_CACHE_FRAGMENTS": "off",
}


def checksums(sides: list[Side], given: argparse.Namespace) -> dict:
    """TPC-H on the local disk, whose files the system has in memory: nothing hides what it costs to check them. Without caches everything is
    read and checked for each query; with them what is near was checked before."""
    for side in sides:
        bench, kept = side.tarn.parent / "tarn-bench", side.folder / "tpch"
        load = [str(bench), "tpch", "--sf", str(given.sf), "--store", "local", "--keep", str(kept), "--queries", "6"]
        subprocess.run([*load, "--rounds", "1", "--python", sys.executable], check=True, stdout=subprocess.DEVNULL)
    queries = sorted((HERE.parents[1] / "crates/tarn-bench/src/tpch/queries").glob("q*.sql"))
    texts = {query.stem: query.read_text().strip().replace(":fraction", f"{0.0001 / given.sf:.10f}") for query in queries}
    out: dict[str, dict] = {}
    for way, environment in (("no caches", NO_CACHES), ("caches", {})):
        environment = dict(environment, TARN_BACKGROUND="false", TARN_QUERY_MEMORY_BYTES="4GiB")
        servers = []
        try:
            for side in sides:
                kept = side.folder / "tpch"
                here = {"TARN_CACHE_FOLDER": str(kept / "cache"), "TARN_LAKE": str(kept / "data" / "lake")}
                options = Options((), environment=environment | here, nice=0)
                servers.append(Server(side.tarn, side.folder / "checksums", options, data=kept / "data"))
                servers[-1].start(600)
            by_query: dict[str, dict[str, list[float]]] = {name: {side.name: [] for side in sides} for name in texts}
            figures = {side.name: {"cpu_s": [0.0] * given.rounds, "s": [0.0] * given.rounds} for side in sides}
            wires = [Wire(server.port, 600) for server in servers]
            for name, sql in texts.items():
                for wire in wires:
                    wire.must(sql)
                for round_ in range(given.rounds):
                    for side, server, wire in zip(sides, servers, wires):
                        used, began = cpu_s(server.pid), time.monotonic()
                        wire.must(sql)
                        took = time.monotonic() - began
                        by_query[name][side.name].append(took)
                        figures[side.name]["s"][round_] += took
                        figures[side.name]["cpu_s"][round_] += cpu_s(server.pid) - used
                say(f"checksums: {way}: {name}")
        finally:
            for server in servers:
                server.kill()
        out[way] = {name: {unit: spread(values) for unit, values in row.items()} for name, row in figures.items()}
        medians = {name: {side: statistics.median(of) for side, of in row.items()} for name, row in by_query.items()}
        out[way]["queries_ms"] = {name: {side: of * 1000 for side, of in row.items()} for name, row in medians.items()}
        if given.base:
            for unit in ("cpu_s", "s"):
                pairs = zip(figures["tarn"][unit], figures["base"][unit])
                out[way][f"{unit}_ratio"] = spread([mine / theirs for mine, theirs in pairs])
        say(f"checksums: {way}: {json.dumps(out[way])}")
    return out


# Rows of a kilobyte each: a gibibyte.
N_SPLIT_ROWS = 1 << 20
N_SPLIT_WRITERS = 4


def split(sides: list[Side], given: argparse.Namespace) -> dict:
    """A table of a gibibyte is split while four clients write rows of it, one at a time: the longest that one of them waits in the second
    around the split, and in the seconds before. First with all rows delivered, then with a fifth of them changed and not delivered."""
    text = " || ".join(f"md5((value * 32 + {n})::text)" for n in range(32))
    out = {}
    for side in sides:
        server = side.server("split", "--recent-limit-bytes", "2GiB", "--tablet-split-bytes", "0", "--delivery-interval-ms", "1h")
        row = out[side.name] = {}
        with server:
            with Wire(server.port, 600) as wire:
                wire.must("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
                write(wire, range(0, N_SPLIT_ROWS, 1 << 15), text, side)
                wire.must("CALL tarn.deliver('t')")
                row["delivered"] = split_at(server, wire, N_SPLIT_ROWS // 2)
                wire.must("CALL tarn.deliver('t')")
                write(wire, range(0, N_SPLIT_ROWS // 5, 1 << 15), text, side)
                row["a fifth is not delivered"] = split_at(server, wire, N_SPLIT_ROWS // 10)
        say(f"split: {side.name}: {json.dumps(row)}")
    return out


def write(wire: Wire, firsts: range, text: str, side: Side) -> None:
    for first in firsts:
        wire.must(f"INSERT INTO t SELECT value, {text} FROM generate_series({first}, {first + firsts.step - 1}) AS s(value)")
    say(f"split: {side.name}: {len(firsts) * firsts.step} rows written")


def split_at(server: Server, wire: Wire, at: int) -> dict:
    done = threading.Event()
    waits: list[tuple[float, float]] = []

    def writer(number: int) -> None:
        with Wire(server.port, 120) as own:
            n = 0
            while not done.is_set():
                n += 1
                began = time.monotonic()
                own.must(f"UPSERT INTO t VALUES ({(n * 7919 + number * 104729) % N_SPLIT_ROWS}, 'another')")
                waits.append((began, time.monotonic()))

    writers = [threading.Thread(target=writer, args=(number,)) for number in range(N_SPLIT_WRITERS)]
    for thread in writers:
        thread.start()
    time.sleep(5)
    began = time.monotonic()
    wire.must(f"CALL tarn.split('t', {at})")
    ended = time.monotonic()
    time.sleep(1)
    done.set()
    for thread in writers:
        thread.join()
    before = [to - since for since, to in waits if to < began]
    around = [to - since for since, to in waits if to >= began and since <= ended + 1]
    return {
        "split_ms": (ended - began) * 1000,
        "split_pause_ms": max(around) * 1000,
        "longest_before_ms": max(before) * 1000,
        "median_before_ms": statistics.median(before) * 1000,
    }


PARTS = {"checksums": checksums, "keyed": keyed, "restart": restart, "cancel": cancel, "split": split}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tarn", required=True, type=pathlib.Path, help="the program to measure")
    arguments.add_argument("--base", type=pathlib.Path, help="another build to compare with")
    arguments.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    arguments.add_argument("--rounds", type=int, default=5, help="of each keyed statement and build, in turns [5]")
    arguments.add_argument("--seconds", type=int, default=5, help="of each of them [5]")
    arguments.add_argument("--sf", type=float, default=1.0, help="scale factor of TPC-H [1]")
    arguments.add_argument("--tables", type=int, default=3000, help="of the restart [3000]")
    arguments.add_argument("--drops", type=int, default=300, help="of these tables [300]")
    arguments.add_argument("--json", action="store_true", help="one JSON object on stdout")
    given = arguments.parse_args()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="tarn-promises-"))
    sides = [Side("base", given.base.absolute(), scratch)] if given.base else []
    sides.append(Side("tarn", given.tarn.absolute(), scratch))
    try:
        figures = {part: PARTS[part](sides, given) for part in given.part}
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(json.dumps(figures) if given.json else json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
