"""Runs the shipped server and real clients against it: psql, psycopg (docs/sql.md with it), pgbench, SQLAlchemy with pandas, asyncpg, JDBC with two drivers,
node-postgres, pgx, `tarn load`, `tarn sql` on a terminal, DuckDB's answers on the same data, and the examples.

    run.py --tarn PATH [NAME…]      names: psql psycopg pgbench sqlalchemy asyncpg docs jdbc jdbc-newest node pgx load console compare archive trips sensors orders

Each test gets a server of its own on a free port, with a temporary folder; both are gone afterwards. Background work is off, so that
a test decides when something is delivered. A client that is not installed (scripts/setup --tests installs all but Go) is left out, and the output
says so. Exits with 1 if a test failed; its output and the server's last lines are printed.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
sys.path.insert(0, str(HERE.parent))

from server import DidNotStart, Options, Server  # noqa: E402

JDBC_JAR = os.environ.get("TARN_JDBC_JAR", "/usr/share/java/postgresql.jar")

# Where scripts/setup puts what is no package of the system: jars, Node's modules, the program of pgx.
CLIENTS = pathlib.Path(os.environ.get("TARN_CLIENTS") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tarn" / "clients")


def jdbc_command(jar):
    return ["java", "-cp", str(jar), str(HERE / "Jdbc.java")]


def newest_jdbc(env):
    return jdbc_command(next(CLIENTS.glob("jars/postgresql-*.jar"), ""))


def node_command(env):
    # The clocks of most programs are not in UTC.
    env |= {"NODE_PATH": str(CLIENTS / "node" / "node_modules"), "TZ": "Europe/Zurich"}
    return ["node", str(HERE / "node" / "client.js")]


# What must be there for a test; others need what the system has.
NEEDED = {
    "jdbc-newest": lambda: next(CLIENTS.glob("jars/postgresql-*.jar"), None),
    "node": lambda: (CLIENTS / "node" / "node_modules" / "pg").exists(),
    "pgx": lambda: (CLIENTS / "pgx").exists(),
}


TESTS = {
    "psql": lambda env: [sys.executable, str(HERE / "psql.py")],
    "psycopg": lambda env: [sys.executable, str(HERE / "psycopg_client.py")],
    "pgbench": lambda env: [sys.executable, str(HERE / "pgbench.py")],
    "sqlalchemy": lambda env: [sys.executable, str(HERE / "sqlalchemy_client.py")],
    "asyncpg": lambda env: [sys.executable, str(HERE / "asyncpg_client.py")],
    "docs": lambda env: [sys.executable, str(HERE / "docs.py")],
    "jdbc": lambda env: jdbc_command(JDBC_JAR),
    "jdbc-newest": newest_jdbc,
    "node": node_command,
    "pgx": lambda env: [str(CLIENTS / "pgx")],
    "load": lambda env: [sys.executable, str(HERE / "load.py")],
    "console": lambda env: [sys.executable, str(HERE / "console.py")],
    "compare": lambda env: [sys.executable, str(HERE / "compare.py")],
    "archive": lambda env: [sys.executable, str(HERE / "archive.py")],
    # As examples/README.md has them; the Rust one was built beside the server.
    "trips": lambda env: ["psql", "-X", "-f", str(EXAMPLES / "trips.sql")],
    "sensors": lambda env: [sys.executable, str(EXAMPLES / "sensors.py")],
    "orders": lambda env: [str(pathlib.Path(env["TARN"]).parent / "examples" / "orders")],
}


def run(name, tarn):
    with tempfile.TemporaryDirectory(prefix=f"tarn-{name}-") as folder:
        server = Server(tarn, pathlib.Path(folder), Options(("--background", "false"), nice=0))
        try:
            with server:
                addresses = {"TARN_PORT": str(server.port), "TARN_HTTP": server.http, "TARN_LAKE": str(server.data / "lake")}
                addresses |= {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "tarn", "PGDATABASE": "tarn"}
                env = dict(os.environ, TARN=str(tarn), TARN_TEST_DIR=folder, PGCONNECT_TIMEOUT="10", **addresses)
                test = subprocess.run(TESTS[name](env), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
                passed, output = test.returncode == 0, test.stdout
                if not server.is_alive():
                    passed, output = False, output + f"\nthe server {server.death()}"
                if server.panics():
                    print(server.log()[-4000:], file=sys.stderr)
                return passed, output
        except DidNotStart as error:
            return False, f"the server did not start: {error}"


def write_counts(path, passed, failed, skipped):
    counts = {"clients_total": len(passed) + len(failed) + len(skipped), "clients_passing": len(passed), "clients_skipped": len(skipped)}
    path.write_text(json.dumps(counts | {"failed": failed, "skipped": skipped}, indent=2) + "\n")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tarn", required=True, type=pathlib.Path)
    arguments.add_argument("--verbose", action="store_true")
    arguments.add_argument("--json", type=pathlib.Path, help="write the counts to this file")
    arguments.add_argument("tests", nargs="*", choices=[[], *TESTS], default=[])
    options = arguments.parse_args()
    passed_names, failed, skipped = [], [], []
    for name in options.tests or TESTS:
        if not NEEDED.get(name, lambda: True)():
            print(f"clients/{name}: skipped, not installed", flush=True)
            skipped.append(name)
            continue
        started = time.monotonic()
        passed, output = run(name, options.tarn.absolute())
        print(f"clients/{name}: {'passed' if passed else 'FAILED'} in {time.monotonic() - started:.1f} s", flush=True)
        if options.verbose or not passed:
            print("    " + output.replace("\n", "\n    "), flush=True)
        (passed_names if passed else failed).append(name)
    if options.json:
        write_counts(options.json, passed_names, failed, skipped)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
