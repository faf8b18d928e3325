"""The stage of a part: a server in a cage, a second client that watches it, and what must hold after every attack.

A part is a class with `attacks`: an endless iterator of named attacks. Attack N of a part always gets the same random
numbers for the same
seed, so that `--part P --seed S --only N` repeats it alone.
"""

import dataclasses
import pathlib
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from server import DidNotStart, Options, Server  # noqa: E402
from watcher import HANG_S, Watcher, prepare  # noqa: E402
from wire import Hung, Left, ServerError, Wire  # noqa: E402

MEBIBYTE = 1 << 20
BASELINE_S = 2.0
# A part whose server had to be started again so often is stopped: it says enough.
MAX_RESTARTS = 12


class Failure(Exception):
    """What an attack found."""


@dataclasses.dataclass
class Attack:
    name: str
    run: Callable[["Stage", random.Random], None]


@dataclasses.dataclass
class Finding:
    part: str
    number: int
    name: str
    text: str


@dataclasses.dataclass
class Settings:
    """What was asked for on the command line."""

    tarn: pathlib.Path
    seed: int
    seconds: float
    quick: bool
    memory_bytes: int
    only: int | None = None
    keep: bool = False
    verbose: bool = False


class Part:
    """One kind of hostility. `name` is its name on the command line."""

    name = ""
    # The server's, beside those of every part.
    flags: tuple[str, ...] = ()
    open_files: int | None = None
    # Without one, the part starts servers of its own, and nobody watches.
    has_server = True
    # Of the seconds that a part gets.
    share = 1.0
    # How long the server may work on one statement, and how long a client waits before it calls that a hang.
    statement_timeout_s = 5
    patience_s = 20.0

    def prepare(self, stage: "Stage") -> None:
        """Makes the tables, before the second client comes."""

    def attacks(self, stage: "Stage") -> Iterator[Attack]:
        raise NotImplementedError

    def afterwards(self, stage: "Stage") -> None:
        """What must hold when all attackers are gone; raises `Failure`."""


@dataclasses.dataclass
class Report:
    part: str
    n_attacks: int
    findings: list[Finding]
    seconds: float
    restarts: int
    peak_rss_bytes: int
    baseline_ms: float
    beside_ms: float
    notes: dict[str, int]


class Stage:
    def __init__(self, part: Part, settings: Settings):
        self.part, self.settings = part, settings
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"tarn-hostile-{part.name}-"))
        self.server: Server | None = None
        self.watcher: Watcher | None = None
        # What is worth knowing, though it is no failure: counted by its text.
        self.notes: dict[str, int] = {}
        self.peak_rss_bytes = 0
        self._n_servers = 0
        self._n_panics = 0
        self._watched_since = 0.0

    def note(self, text: str) -> None:
        self.notes[text] = self.notes.get(text, 0) + 1

    def open(self) -> None:
        """A fresh server on a fresh folder, with the part's tables, and the second client."""
        if not self.part.has_server:
            self.part.prepare(self)
            return
        self._n_servers += 1
        folder = self.folder / f"server-{self._n_servers}"
        flags = ["--statement-timeout-ms", f"{self.part.statement_timeout_s}s", "--query-memory-bytes", "128MiB"]
        flags += ["--query-partitions", "2", *self.part.flags]
        options = Options(tuple(flags), self.settings.memory_bytes, open_files=self.part.open_files)
        self.server = Server(self.settings.tarn, folder, options)
        self.server.start()
        self._n_panics = 0
        prepare(self.server.port)
        self.part.prepare(self)
        self.watcher = Watcher(self.server.port, folder)
        self._watched_since = time.monotonic()

    def close(self) -> None:
        if self.watcher is not None:
            self.watcher.stop()
            self.watcher = None
        if self.server is not None:
            self.peak_rss_bytes = max(self.peak_rss_bytes, self.server.peak_rss_bytes)
            self.server.kill()
            self.server = None

    def lives(self) -> bool:
        return self.server is None or self.server.is_alive()

    def fault(self) -> str | None:
        """What does not hold of: alive, no panic, the second client is answered."""
        if self.server is None:
            return None
        if not self.server.is_alive():
            last = [line for line in self.server.log().splitlines() if line.strip()][-3:]
            return f"the server {self.server.death()}: {' | '.join(last)[-400:]}"
        panics = self.server.panics()
        if len(panics) > self._n_panics:
            new, self._n_panics = panics[self._n_panics :], len(panics)
            return f"{len(new)} panics, the first: {new[0][-300:]}"
        if self.watcher.silent_s() > HANG_S:
            return f"the second client waits for {self.watcher.silent_s():.0f} s"
        return None

    def is_served(self, timeout_s: float = 10.0) -> bool:
        """Does a new client get an answer?"""
        try:
            with Wire(self.server.port, timeout_s) as wire:
                return wire.ask("SELECT 1").rows == [["1"]]
        except (Hung, Left, ServerError, OSError):
            return False

    def settle(self) -> bool:
        """Waits until the server is known to serve or to be dead: one that aborts closes its connections some seconds
        before it is gone."""
        if self.server is None:
            return True
        deadline = time.monotonic() + 10
        while self.server.is_alive() and time.monotonic() < deadline:
            if self.is_served(5):
                return True
            time.sleep(0.1)
        return False

    def wire(self, timeout_s: float | None = None) -> Wire:
        return Wire(self.server.port, timeout_s or self.part.patience_s)

    def metric(self, name: str) -> float:
        """A gauge of /metrics."""
        import urllib.request

        with urllib.request.urlopen(f"http://{self.server.http}/metrics", timeout=20) as response:
            for line in response.read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        raise Failure(f"/metrics has no {name}")


def play(part: Part, settings: Settings, say: Callable[[str], None]) -> Report:
    """Runs a part's attacks for as long as it may, each one checked; a server that is lost is replaced."""
    stage, findings, started, n_attacks, restarts = Stage(part, settings), [], time.monotonic(), 0, 0
    baseline_ms = beside_ms = float("nan")

    def found(number: int, name: str, text: str) -> None:
        findings.append(Finding(part.name, number, name, text))
        say(f"  {part.name} #{number} {name}: {text}")

    def look_at_watcher() -> None:
        nonlocal beside_ms
        if stage.watcher is None:
            return
        worst = stage.watcher.p99_ms(since=stage._watched_since + BASELINE_S)
        beside_ms = max(worst, beside_ms) if beside_ms == beside_ms else worst

    try:
        stage.open()
        if stage.watcher is not None:
            time.sleep(BASELINE_S)
            baseline_ms = stage.watcher.p99_ms()
        attacking = time.monotonic()
        for number, attack in enumerate(part.attacks(stage)):
            if settings.only is not None:
                if number > settings.only:
                    break
                if number < settings.only:
                    continue
            elif time.monotonic() - attacking > settings.seconds * part.share:
                break
            n_attacks += 1
            if settings.verbose:
                say(f"  {part.name} #{number} {attack.name}")
            said, is_lost = [], False
            try:
                attack.run(stage, random.Random(f"{settings.seed}/{part.name}/{number}"))
            except Hung as hung:
                is_lost = True
                said.append(f"{hung}; {'others are served' if stage.is_served() else 'NOBODY is served'}")
            except Failure as failure:
                said.append(str(failure))
            except (Left, ServerError, OSError) as error:
                said.append(f"{type(error).__name__}: {error}")
            if not is_lost and not stage.settle() and stage.lives():
                is_lost = True
                said.append("no new client is served")
            fault = stage.fault()
            said += [] if fault is None else [fault]
            if said:
                found(number, attack.name, "; ".join(said))
            if is_lost or not stage.lives() or (fault is not None and "waits" in fault):
                look_at_watcher()
                stage.close()
                restarts += 1
                if restarts > MAX_RESTARTS:
                    say(f"  {part.name}: {restarts} servers were lost, that is enough")
                    return finish(stage, n_attacks, findings, started, restarts, baseline_ms, beside_ms)
                stage.open()
        try:
            part.afterwards(stage)
        except (Failure, Hung, Left, ServerError, OSError) as error:
            found(-1, "afterwards", f"{type(error).__name__}: {error}")
        fault = stage.fault()
        if fault is not None:
            found(-1, "afterwards", fault)
        gap = stage.watcher.longest_gap_s() if stage.watcher is not None else 0.0
        if gap > HANG_S:
            found(-1, "second client", f"had no answer for {gap:.0f} s")
        look_at_watcher()
    except DidNotStart as error:
        found(-1, "start", str(error))
    return finish(stage, n_attacks, findings, started, restarts, baseline_ms, beside_ms)


def finish(
    stage: Stage,
    n_attacks: int,
    findings: list[Finding],
    started: float,
    restarts: int,
    baseline_ms: float,
    beside_ms: float,
) -> Report:
    stage.close()
    if not stage.settings.keep:
        shutil.rmtree(stage.folder, ignore_errors=True)
    seconds = time.monotonic() - started
    return Report(
        stage.part.name,
        n_attacks,
        findings,
        seconds,
        restarts,
        stage.peak_rss_bytes,
        baseline_ms,
        beside_ms,
        stage.notes,
    )
