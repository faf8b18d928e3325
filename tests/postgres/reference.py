"""The PostgreSQL that is right: one of this run's own, with a template of what every file expects to be there."""

import pathlib
import shutil
import subprocess
import tempfile
import urllib.parse

from pair import DATABASE, SETTINGS, STATEMENT_TIMEOUT_S
from script import Script
from wire import Wire

SERVICE = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "services" / "postgres"
PATIENCE_S = 60.0
TEMPLATE = "template_regress"


class Postgres:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tarn-regress-"))
        # PostgreSQL does not run as root, and its user has to reach the folder.
        self.folder.chmod(0o755)
        self.regress, self.variables = pathlib.Path(), {}
        try:
            started = subprocess.run([SERVICE, "start", self.folder], check=True, stdout=subprocess.PIPE, text=True)
            self.port = urllib.parse.urlsplit(started.stdout.strip()).port
            self.root = Wire(self.port, PATIENCE_S, database="postgres")
        except BaseException:
            self.stop()
            raise

    def version(self) -> str:
        return self.root.must("SHOW server_version").scalar().split()[0]

    def prepare(self, regress: pathlib.Path) -> None:
        """Makes the template. `regress` has the folders `sql` and `data`."""
        self.regress = regress
        # The server reads `data` and writes `results` as its own user.
        place = self.folder / "regress"
        shutil.copytree(regress / "data", place / "data")
        (place / "results").mkdir()
        (place / "results").chmod(0o777)
        # What psql would take from the environment.
        self.variables = {"abs_srcdir": f"{place}", "abs_builddir": f"{place}", "libdir": f"{place}", "dlsuffix": ".so"}
        settings = {"autovacuum": "off", "fsync": "off", "statement_timeout": f"{STATEMENT_TIMEOUT_S}s", **SETTINGS}
        for name, value in settings.items():
            self.root.must(f"ALTER SYSTEM SET {name} = '{value}'")
        self.root.must("SELECT pg_reload_conf()")
        self.root.must(f"CREATE DATABASE {TEMPLATE}")
        self.run("test_setup", TEMPLATE)

    def script(self, name: str) -> Script:
        text = (self.regress / "sql" / f"{name}.sql").read_text(errors="surrogateescape")
        return Script(text, self.variables)

    def run(self, name: str, database: str = DATABASE) -> None:
        """A file on PostgreSQL alone, whatever it says: functions in C, for one, are not there."""
        script = self.script(name)
        with Wire(self.port, PATIENCE_S, database=database, settings=SETTINGS) as wire:
            while text := script.next():
                wire.ask(text.sql, data=script.copy_data)

    def fresh(self) -> None:
        self.root.must(f"DROP DATABASE IF EXISTS {DATABASE}")
        self.root.must(f"CREATE DATABASE {DATABASE} TEMPLATE {TEMPLATE}")

    def stop(self) -> None:
        """Also when it did not start."""
        if hasattr(self, "root"):
            self.root.close()
        subprocess.run([SERVICE, "stop", self.folder], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
