"""One regress file on both: a fresh database, a fresh server, every statement, and what broke."""

import collections
import pathlib
import tempfile
import time

from compare import NOT_COMPARED, Verdict
from pair import STATEMENT_TIMEOUT_S, Pair, Step
from reference import Postgres
from script import Script
from server import DidNotStart, Options, Server
from wire import Hung, Left

MEMORY_BYTES = 2 << 30
FILE_TIMEOUT_S = 300
FLAGS = ("--background", "false", "--statement-timeout-ms", f"{STATEMENT_TIMEOUT_S}s")
# Files that use what others made.
BEFORE = {"horology": ["date", "time", "timetz", "timestamp", "timestamptz", "interval"]}


class File:
    def __init__(self, name: str):
        self.name, self.steps, self.broken = name, [], []
        self.seconds = 0.0

    def run(self, tarn: pathlib.Path, postgres: Postgres) -> None:
        started = time.monotonic()
        postgres.fresh()
        for other in BEFORE.get(self.name, []):
            postgres.run(other)
        with tempfile.TemporaryDirectory(prefix="tarn-regress-server-") as folder:
            server = Server(tarn, pathlib.Path(folder), Options(FLAGS, memory_bytes=MEMORY_BYTES))
            try:
                with server:
                    self.statements(server, postgres, postgres.script(self.name), started)
                    self.broken += [f"panic: {panic}" for panic in server.panics()]
            except DidNotStart as error:
                self.broken.append(f"the server did not start: {error}")
        self.seconds = time.monotonic() - started

    def statements(self, server: Server, postgres: Postgres, script: Script, started: float) -> None:
        pair = Pair(postgres.port, server, server.folder / "copies")
        try:
            while text := script.next():
                if time.monotonic() - started > FILE_TIMEOUT_S:
                    self.broken.append(f"took more than {FILE_TIMEOUT_S} s, up to line {text.line}")
                    return
                try:
                    self.steps.append(pair.run(script, text))
                except (Hung, Left) as error:
                    what = f"{type(error).__name__}: {error}; the server {server.death()}"
                    self.broken.append(f"line {text.line}: {what}: {text.sql[:500]}")
                    self.steps.append(Step(text, Verdict(NOT_COMPARED, "Tarn broke")))
                    if not server.is_alive():
                        self.broken += [f"panic: {panic}" for panic in server.panics()]
                        server.kill()
                        server.start()
                    pair.again(server)
        finally:
            pair.close()

    def counts(self) -> collections.Counter:
        return collections.Counter(step.verdict.outcome for step in self.steps)
