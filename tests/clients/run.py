"""Runs the shipped server and real clients against it: psql, pg_dump, pgbench, drivers, ORMs and migrations of several languages, docs/sql.md, `tarn load`,
`tarn sql` on a terminal, DuckDB's answers on the same data, and the examples.

    run.py --tarn PATH [--all [--python PATH]] [NAME…]      names: the list TESTS
    run.py --postgres [NAME…]                               the same scripts against a PostgreSQL, which must pass, too: those of SHARED

Each test gets a server of its own on a free port, with a temporary folder; both are gone afterwards. Background work is off, so that
a test decides when something is delivered. A client that is not installed (scripts/setup --tests installs all but Go) is left out, and the output
says so. Those of HEAVY are large, and run with `--all`, by a Python that has tests/clients/requirements-clients.txt (`make test-clients-all`).
Exits with 1 if a test failed; its output and the server's last lines are printed.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
sys.path.insert(0, str(HERE.parent))

from server import DidNotStart, Options, Server  # noqa: E402

JDBC_JAR = os.environ.get("TARN_JDBC_JAR", "/usr/share/java/postgresql.jar")

# Where scripts/setup puts what is no package of the system: jars, Node's modules, the program of pgx.
CLIENTS = pathlib.Path(os.environ.get("TARN_CLIENTS") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tarn" / "clients")


def newest_jar():
    """Of the driver; nothing if it is not installed."""
    return next(CLIENTS.glob("jars/postgresql-*.jar"), "")


def jdbc_command(jar, script="Jdbc.java"):
    return ["java", "-cp", str(jar), str(HERE / script)]


def newest_jdbc(env, script="Jdbc.java"):
    return jdbc_command(newest_jar(), script)


def node_command(env, script="client.js"):
    # The clocks of most programs are not in UTC.
    env |= {"NODE_PATH": str(CLIENTS / "node" / "node_modules"), "TZ": "Europe/Zurich"}
    return ["node", str(HERE / "node" / script)]


def heavy(script):
    """By the Python that has the large clients (`--python`)."""
    return lambda env: [env["TARN_CLIENTS_PYTHON"], str(HERE / script)]


# What must be there for a test; others need what the system has.
NEEDED = {
    "jdbc-newest": newest_jar,
    "jdbc-tools": newest_jar,
    "node": lambda: (CLIENTS / "node" / "node_modules" / "pg").exists(),
    "node-others": lambda: (CLIENTS / "node" / "node_modules" / "drizzle-orm").exists(),
    "pgx": lambda: (CLIENTS / "pgx").exists(),
    "libpq-go": lambda: (CLIENTS / "libpq-go").exists(),
    "spark": newest_jar,
}

# Only with --all: hundreds of megabytes, or minutes.
HEAVY = ("arrow-frames", "dbt", "spark")

# Scripts that know nothing of Tarn: `--postgres` runs them.
SHARED = ("psycopg2", "django", "alembic", "arrow", "dump", "jdbc-tools", "node-others", "libpq-go", *HEAVY)


TESTS = {
    "psql": lambda env: [sys.executable, str(HERE / "psql.py")],
    "psycopg": lambda env: [sys.executable, str(HERE / "psycopg_client.py")],
    "pgbench": lambda env: [sys.executable, str(HERE / "pgbench.py")],
    "sqlalchemy": lambda env: [sys.executable, str(HERE / "sqlalchemy_client.py")],
    "asyncpg": lambda env: [sys.executable, str(HERE / "asyncpg_client.py")],
    "psycopg2": lambda env: [sys.executable, str(HERE / "psycopg2_client.py")],
    "django": lambda env: [sys.executable, str(HERE / "django_client.py")],
    "alembic": lambda env: [sys.executable, str(HERE / "alembic_client.py")],
    "arrow": lambda env: [sys.executable, str(HERE / "arrow_client.py")],
    "arrow-frames": heavy("arrow_client.py"),
    "dbt": heavy("dbtcore_client.py"),
    "spark": heavy("spark_client.py"),
    "dump": lambda env: [sys.executable, str(HERE / "dump_client.py")],
    "docs": lambda env: [sys.executable, str(HERE / "docs.py")],
    "jdbc": lambda env: jdbc_command(JDBC_JAR),
    "jdbc-newest": newest_jdbc,
    "jdbc-tools": lambda env: newest_jdbc(env, "Tools.java"),
    "node": node_command,
    "node-others": lambda env: node_command(env, "others.js"),
    "pgx": lambda env: [str(CLIENTS / "pgx")],
    "libpq-go": lambda env: [str(CLIENTS / "libpq-go")],
    "load": lambda env: [sys.executable, str(HERE / "load.py")],
    "console": lambda env: [sys.executable, str(HERE / "console.py")],
    "compare": lambda env: [sys.executable, str(HERE / "compare.py")],
    "archive": lambda env: [sys.executable, str(HERE / "archive.py")],
    # As examples/README.md has them; the Rust one was built beside the server.
    "trips": lambda env: ["psql", "-X", "-f", str(EXAMPLES / "trips.sql")],
    "sensors": lambda env: [sys.executable, str(EXAMPLES / "sensors.py")],
    "orders": lambda env: [str(pathlib.Path(env["TARN"]).parent / "examples" / "orders")],
}


def asked(name, folder, port, settings):
    """Runs one script against a server that is there; whether it passed, and what it said."""
    addresses = {"TARN_PORT": str(port), "PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "tarn", "PGDATABASE": "tarn"}
    jar = newest_jar()
    env = dict(os.environ, TARN_TEST_DIR=folder, PGCONNECT_TIMEOUT="10", TARN_NEWEST_JDBC_JAR=str(jar), **addresses, **settings)
    test = subprocess.run(TESTS[name](env), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    return test.returncode == 0, test.stdout


def run(name, tarn, python):
    with tempfile.TemporaryDirectory(prefix=f"tarn-{name}-") as folder:
        server = Server(tarn, pathlib.Path(folder), Options(("--background", "false"), nice=0))
        try:
            with server:
                settings = {"TARN": str(tarn), "TARN_HTTP": server.http, "TARN_LAKE": str(server.data / "lake"), "TARN_CLIENTS_PYTHON": python}
                passed, output = asked(name, folder, server.port, settings)
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


def run_on_postgres(name, python):
    service = HERE.parents[1] / "scripts" / "services" / "postgres"
    with tempfile.TemporaryDirectory(prefix=f"postgres-{name}-") as folder:
        # Its user has to reach it.
        pathlib.Path(folder).chmod(0o755)
        place = pathlib.Path(folder) / "server"
        try:
            started = subprocess.run([service, "start", place], check=True, stdout=subprocess.PIPE, text=True)
            port = urllib.parse.urlsplit(started.stdout.strip()).port
            subprocess.run(["createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "tarn", "tarn"], check=True)
            return asked(name, folder, port, {"TARN_TEST_POSTGRES": "yes", "TARN_CLIENTS_PYTHON": python})
        finally:
            subprocess.run([service, "stop", place], check=False)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    server = arguments.add_mutually_exclusive_group(required=True)
    server.add_argument("--tarn", type=pathlib.Path)
    server.add_argument("--postgres", action="store_true")
    arguments.add_argument("--all", action="store_true")
    arguments.add_argument("--python", default=sys.executable)
    arguments.add_argument("--verbose", action="store_true")
    arguments.add_argument("--json", type=pathlib.Path, help="write the counts to this file")
    arguments.add_argument("tests", nargs="*", choices=[[], *TESTS], default=[])
    options = arguments.parse_args()
    passed_names, failed, skipped = [], [], []
    those = [name for name in (SHARED if options.postgres else TESTS) if options.all or name not in HEAVY]
    for name in options.tests or those:
        if not NEEDED.get(name, lambda: True)():
            print(f"clients/{name}: skipped, not installed", flush=True)
            skipped.append(name)
            continue
        started = time.monotonic()
        passed, output = run_on_postgres(name, options.python) if options.postgres else run(name, options.tarn.absolute(), options.python)
        print(f"clients/{name}: {'passed' if passed else 'FAILED'} in {time.monotonic() - started:.1f} s", flush=True)
        if options.verbose or not passed:
            print("    " + output.replace("\n", "\n    "), flush=True)
        (passed_names if passed else failed).append(name)
    if options.json:
        write_counts(options.json, passed_names, failed, skipped)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
