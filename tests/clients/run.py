"""Runs the shipped server and real clients against it: psql, psycopg, JDBC, `tarn load`, and DuckDB's answers on the same data.

    run.py --tarn PATH [NAME…]      names: psql psycopg jdbc load compare archive

Each test gets a server of its own on a free port, with a temporary folder; both are gone afterwards. Background work is off, so that
a test decides when something is delivered. Exits with 1 if a test failed; its output and the server's last lines are printed.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
JDBC_JAR = os.environ.get("TARN_JDBC_JAR", "/usr/share/java/postgresql.jar")


def jdbc_command(env):
    return ["java", "-cp", JDBC_JAR, str(HERE / "Jdbc.java")]


TESTS = {
    "psql": lambda env: [sys.executable, str(HERE / "psql.py")],
    "psycopg": lambda env: [sys.executable, str(HERE / "psycopg_client.py")],
    "jdbc": jdbc_command,
    "load": lambda env: [sys.executable, str(HERE / "load.py")],
    "compare": lambda env: [sys.executable, str(HERE / "compare.py")],
    "archive": lambda env: [sys.executable, str(HERE / "archive.py")],
}


def run(name, tarn):
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"tarn-{name}-"))
    log = open(folder / "server.log", "w+")
    command = [tarn, "serve", "--stop-when-stdin-closes", "--data-dir", folder / "data", "--background", "false"]
    command += ["--pg-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        ready = next((line for line in server.stdout if line.startswith("ready ")), None)
        if ready is None:
            return False, "the server did not start"
        addresses = dict(part.split("=") for part in ready.split()[1:])
        env = dict(os.environ, TARN=str(tarn), TARN_PORT=addresses["postgres"].rsplit(":", 1)[1], TARN_HTTP=addresses["http"])
        env |= {"TARN_TEST_DIR": str(folder), "TARN_LAKE": str(folder / "data" / "lake"), "PGCONNECT_TIMEOUT": "10"}
        test = subprocess.run(TESTS[name](env), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        passed, output = test.returncode == 0, test.stdout
        if server.poll() is not None:
            passed, output = False, output + f"\nthe server ended with {server.returncode}"
        return passed, output
    finally:
        server.kill()
        server.wait()
        log.seek(0)
        last = log.readlines()[-15:]
        if any("panicked" in line for line in last):
            print("".join(last), file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tarn", required=True, type=pathlib.Path)
    arguments.add_argument("--verbose", action="store_true")
    arguments.add_argument("tests", nargs="*", choices=[[], *TESTS], default=[])
    options = arguments.parse_args()
    failed = []
    for name in options.tests or TESTS:
        started = time.monotonic()
        passed, output = run(name, options.tarn.absolute())
        print(f"clients/{name}: {'passed' if passed else 'FAILED'} in {time.monotonic() - started:.1f} s", flush=True)
        if options.verbose or not passed:
            print("    " + output.replace("\n", "\n    "), flush=True)
        failed += [] if passed else [name]
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
