"""Does dbt work? `dbt debug`, `seed`, `run` (tables, views, incremental and ephemeral models), `test`, `snapshot`, `docs generate`, and all of it once more."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import psycopg

from steps import URL

FOLDER = pathlib.Path(os.environ["TARN_TEST_DIR"]) / "dbt"
shutil.copytree(pathlib.Path(__file__).parent / "dbtproject", FOLDER)
DBT = pathlib.Path(sys.executable).parent / "dbt"


def dbt(*command):
    """Runs a command; returns the nodes that failed, each with what was said of it."""
    places = ["--project-dir", str(FOLDER), "--profiles-dir", str(FOLDER)]
    told = subprocess.run([DBT, "--no-use-colors", "--no-send-anonymous-usage-stats", *command, *places], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    failed = dict(re.findall(r"(?:Database|Runtime|Compilation) Error in \w+ (\w+).*\n\S+\s+(.*)", told.stdout)) | dict(re.findall(r"(?:Failure) in test (\w+) .*\n\S+\s+(.*)", told.stdout))
    print(f"dbt {' '.join(command)}: {told.returncode}", *(f"    {node}: {said}" for node, said in failed.items()), sep="\n", flush=True)
    assert failed or told.returncode == 0, told.stdout
    return failed


def check(failed):
    assert not failed, failed


def rows(sql):
    with psycopg.connect(URL) as c:
        return c.execute(sql).fetchall()


dbt("debug")
for again in (False, True):
    check(dbt("seed"))
    check(dbt("run"))
    check(dbt("test"))
    check(dbt("snapshot"))
    assert rows("SELECT rides, fares FROM by_city WHERE city = 'Bern'") == [(100, 22725)]
    assert rows("SELECT sum(rides), count(*) FROM days") == [(300, 13)]
    if not again:
        with psycopg.connect(URL) as c:
            c.execute("INSERT INTO rides (id, city, at, fare) VALUES (1000, 'Bern', '2027-01-01 08:00', 1)")
        (FOLDER / "seeds" / "cities.csv").write_text((FOLDER / "seeds" / "cities.csv").read_text().replace("Lyon,FR", "Lyon,BE"))
check(dbt("docs", "generate"))

# In a schema of its own, which it makes.
os.environ["DBT_SCHEMA"] = "analysis"
for again in (False, True):
    check(dbt("seed"))
    check(dbt("run"))
    check(dbt("test"))
    assert rows("SELECT rides, fares FROM analysis.by_city WHERE city = 'Bern'") == [(100, 22725)]
    assert rows("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'analysis' AND table_name LIKE '%\\_\\_dbt%'") == [(0,)]
check(dbt("docs", "generate"))
