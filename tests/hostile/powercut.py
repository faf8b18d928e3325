"""Power cuts: what was acknowledged is there afterwards, what was refused is not.

    powercut.py --tarn PATH [--seconds N] [--seed S]

The data folder lies on an ext4 image. A cut is ext4's own shutdown without a flush of its journal: from that moment
nothing reaches the image, and
what was not synced is gone. Then the server is killed, the image mounted anew, and everything is read back on each
access path, before and after
a delivery and a compaction. Mount options change from cut to cut; some cuts come while the server starts. It needs root
and a loop
device; without them it says so and passes.
"""

import argparse
import fcntl
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import wire as protocol
from server import DidNotStart, Options, Server
from wire import Hung, Left, ServerError, Wire

IMAGE_BYTES = 2 << 30
EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_JOURNAL = 2
MOUNTS = [
    "commit=300",
    "commit=300,data=writeback",
    "commit=1",
    "commit=300,nodelalloc",
    "commit=30,data=journal",
    "commit=300,noatime,data=writeback,nodelalloc",
]
FLAGS = (
    "--log-segment-bytes",
    "256KiB",
    "--log-flush-bytes",
    "1MiB",
    "--rows-memory-bytes",
    "8MiB",
    "--delivery-interval-ms",
    "300ms",
)
FLAGS += (
    "--background-interval-ms",
    "100ms",
    "--versions-kept-ms",
    "1s",
    "--query-partitions",
    "2",
    "--statement-timeout-ms",
    "20s",
)
N_WRITERS, N_KEYS = 4, 150
# Refused before anything was written; any other error leaves it open.
REFUSED = ("57P03", "53400", "53200", "22P02", "23505", "25006", "53100")


def say(text: str) -> None:
    print(text, flush=True)


class Wrong(Exception):
    pass


class Disk:
    """An ext4 image and where it is mounted."""

    def __init__(self, folder: pathlib.Path):
        self.image, self.mountpoint = folder / "image", folder / "mount"
        self.mountpoint.mkdir()
        with open(self.image, "wb") as image:
            image.truncate(IMAGE_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.image], check=True)
        self.is_mounted = False

    def mount(self, options: str) -> None:
        subprocess.run(
            ["mount", "-o", f"loop,{options}", self.image, self.mountpoint], check=True, stderr=subprocess.PIPE
        )
        self.is_mounted = True

    def cut(self) -> None:
        folder = os.open(self.mountpoint, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_JOURNAL))
        finally:
            os.close(folder)

    def unmount(self) -> None:
        for _ in range(100):
            if subprocess.run(["umount", self.mountpoint], stderr=subprocess.DEVNULL).returncode == 0:
                self.is_mounted = False
                return
            time.sleep(0.1)
        raise RuntimeError(f"{self.mountpoint} is busy")


class Writer:
    """One client with keys of its own. `sure`: what was acknowledged; `open`: what the statement under way, or one
    without an answer, would make of it."""

    def __init__(self, number: int):
        self.first = number * 1_000_000
        self.sure: dict[int, int | None] = {}
        self.open: dict[int, set[int | None]] = {}
        self.events: set[int] = set()
        self.open_events: set[int] = set()
        self.n_acknowledged = 0
        self.next_event = self.first

    def run(self, port: int, rng: random.Random, stop: threading.Event) -> None:
        """Writes until the server is gone or says no."""
        try:
            wire = Wire(port, 30)
        except (Hung, Left, ServerError, OSError):
            return
        while not stop.is_set() and self.step(wire, rng):
            pass
        wire.close()

    def step(self, wire: Wire, rng: random.Random) -> bool:
        kind, keys = rng.randrange(6), [self.first + rng.randrange(N_KEYS) for _ in range(rng.choice([1, 1, 3, 20]))]
        value = rng.randrange(1 << 40)
        after: dict[int, int | None] = {}
        events: set[int] = set()
        sent = b""
        if kind <= 1:
            after = {key: value for key in keys}
            sql = "UPSERT INTO t VALUES " + ", ".join(
                f"({key}, {value}, '{'x' * rng.choice([5, 500])}')" for key in after
            )
        elif kind == 2:
            after = {key: value for key in keys[:1] if self.sure.get(key) is not None and key not in self.open}
            sql = f"UPDATE t SET n = {value} WHERE id = {keys[0]}"
        elif kind == 3:
            after = {key: None for key in keys}
            sql = f"DELETE FROM t WHERE id IN ({', '.join(map(str, keys))})"
        elif kind == 4:
            events = set(range(self.next_event, self.next_event + rng.choice([1, 10, 100])))
            sql = "INSERT INTO e VALUES " + ", ".join(f"({key}, 1)" for key in sorted(events))
        else:
            after = {key: value for key in keys}
            sql = "COPY t FROM STDIN WITH (on_conflict = replace)"
            sent = "".join(f"{key}\t{value}\tcopied\n" for key in after).encode()
        # An UPDATE of a row that may or may not be there: leave it.
        if kind == 2 and not after:
            return True
        try:
            if sent:
                wire.send(protocol.query(sql))
                begun = wire.until_ready(30, until=b"GZ")
                if not begun.error:
                    wire.send(protocol.copy_data(sent) + protocol.COPY_DONE)
                    begun = wire.until_ready(30)
                error = begun.error
            else:
                error = wire.ask(sql, 30).error
        except (Hung, Left):
            error = None
            self.leave_open(after, events)
            return False
        if error is not None:
            if error.state not in REFUSED:
                self.leave_open(after, events)
            return False
        for key, made in after.items():
            self.sure[key] = made
            self.open.pop(key, None)
        if events:
            self.next_event = max(events) + 1
            self.events |= events
        self.n_acknowledged += 1
        return True

    def leave_open(self, after: dict[int, int | None], events: set[int]) -> None:
        for key, made in after.items():
            self.open.setdefault(key, set()).add(made)
        self.open_events |= events
        self.next_event = max(events, default=self.next_event - 1) + 1

    def check(self, rows: dict[int, int], events: list[int], about: str) -> None:
        for key in range(self.first, self.first + N_KEYS):
            is_, allowed = rows.get(key), {self.sure.get(key)} | self.open.get(key, set())
            if is_ not in allowed:
                raise Wrong(f"{about}: row {key} is {is_}, want one of {allowed}")
        own = [event for event in events if self.first <= event < self.first + 1_000_000]
        if len(own) != len(set(own)):
            raise Wrong(f"{about}: an event is there twice")
        if missing := self.events - set(own):
            raise Wrong(f"{about}: {len(missing)} acknowledged events are missing, such as {min(missing)}")
        if more := set(own) - self.events - self.open_events:
            raise Wrong(f"{about}: {len(more)} events that were refused or never sent, such as {min(more)}")

    def settle(self, rows: dict[int, int], events: list[int]) -> None:
        """What was open is known now, and is not allowed to change any more."""
        for key in self.open:
            self.sure[key] = rows.get(key)
        self.open.clear()
        self.events |= self.open_events & set(events)
        self.open_events.clear()


def read_back(server: Server, writers: list[Writer], about: str) -> None:
    with Wire(server.port, 60) as wire:
        wire.max_rows_kept = 1 << 30
        for when in ("", ", after a delivery and a compaction"):
            for path in ("auto", "lake", "rows"):
                wire.must(f"SET tarn.access_path = '{path}'")
                answers = [wire.ask("SELECT id, n FROM t", 60), wire.ask("SELECT id FROM e", 60)]
                if path == "rows" and any(answer.error and answer.error.state == "0A000" for answer in answers):
                    continue
                for answer in answers:
                    if answer.error:
                        raise Wrong(f"{about}{when}, {path}: {answer.error}")
                rows = {int(key): int(value) for key, value in answers[0].rows}
                if len(rows) != len(answers[0].rows):
                    raise Wrong(f"{about}{when}, {path}: a key is there twice")
                events = [int(row[0]) for row in answers[1].rows]
                for writer in writers:
                    writer.check(rows, events, f"{about}{when}, {path}")
                    writer.settle(rows, events)
            if not when:
                for table in ("t", "e"):
                    wire.must(f"CALL tarn.deliver('{table}')", 60)
                    wire.must(f"CALL tarn.compact('{table}')", 60)


def live_and_die(server: Server, disk: Disk, writers: list[Writer], rng: random.Random) -> str:
    """One life of the server on the mounted disk, up to the cut. What happened, in a word."""
    if rng.random() < 0.25:
        # While it starts: replay and repair are cut, too.
        cutter = threading.Timer(rng.uniform(0.02, 0.6), disk.cut)
        cutter.start()
        try:
            server.start()
        except DidNotStart:
            pass
        cutter.join()
        server.kill()
        return "cut while starting"
    server.start()
    stop = threading.Event()
    threads = [
        threading.Thread(target=writer.run, args=(server.port, random.Random(rng.random()), stop)) for writer in writers
    ]
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0.3, 4.0))
    disk.cut()
    time.sleep(rng.choice([0, 0.1, 0.5]))
    stop.set()
    server.kill()
    for thread in threads:
        thread.join()
    return "cut"


def can_cut(folder: pathlib.Path) -> str | None:
    """Why it cannot be done here."""
    if os.geteuid() != 0:
        return "mounting an image needs root"
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found"
    probe = folder / "probe"
    probe.mkdir()
    disk = Disk(probe)
    try:
        disk.mount("commit=300")
        disk.cut()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no loop device, or no ext4 that can be shut down: {error}"
    finally:
        if disk.is_mounted:
            disk.unmount()
        disk.image.unlink()
    return None


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tarn", required=True, type=pathlib.Path)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--mount", choices=MOUNTS, help="with these options alone")
    arguments.add_argument(
        "--keep", action="store_true", help="leave the image of a cut that lost something, as it was after the cut"
    )
    given = arguments.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 32)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tarn-powercut-"))
    why_not = can_cut(folder)
    if why_not is not None:
        shutil.rmtree(folder, ignore_errors=True)
        say(f"powercut: SKIPPED: {why_not}")
        return
    say(f"powercut: seed {seed}, {given.seconds:.0f} s")
    rng, writers, outcomes, wrong = random.Random(seed), [Writer(number) for number in range(N_WRITERS)], {}, None
    disk = Disk(folder)
    server = Server(given.tarn.absolute(), folder / "server", Options(FLAGS), data=disk.mountpoint / "data")
    ends = time.monotonic() + given.seconds
    n_cuts = 0
    try:
        disk.mount("commit=1")
        server.start()
        with Wire(server.port, 30) as wire:
            wire.must("CREATE TABLE t (id int PRIMARY KEY, n bigint, v text) WITH (partitioning = 'hash', tablets = 2)")
            wire.must("CREATE TABLE e (id int PRIMARY KEY, n int) WITH (append_only = true)")
        server.stop()
        disk.unmount()
        while time.monotonic() < ends:
            options = given.mount or rng.choice(MOUNTS)
            about = f"cut {n_cuts} ({options})"
            disk.mount(options)
            outcome = live_and_die(server, disk, writers, rng)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            disk.unmount()
            n_cuts += 1
            if given.keep:
                subprocess.run(["cp", "--sparse=always", disk.image, folder / "cut"], check=True)
            if rng.random() < 0.7:
                disk.mount("commit=5")
                server.start()
                read_back(server, writers, about)
                if panics := server.panics():
                    raise Wrong(f"{about}: {panics[0]}")
                server.stop()
                disk.unmount()
    except (Wrong, DidNotStart, Hung, Left, ServerError) as error:
        wrong = f"{type(error).__name__}: {error}"
    finally:
        server.kill()
        if disk.is_mounted:
            disk.unmount()
        if given.keep and wrong is not None:
            say(f"kept: {folder / 'cut'} (mount -o loop), {server.log_path}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    acknowledged = sum(writer.n_acknowledged for writer in writers)
    say(", ".join(f"{count} {name}" for name, count in outcomes.items()) + f", {acknowledged} statements acknowledged")
    if wrong is not None:
        say(f"FAILED: {wrong}; repeat with --seed {seed} (writers race: it may take more than one run)")
    say(f"{int(wrong is None)} passed, {int(wrong is not None)} failed, {n_cuts} cuts (seed {seed})")
    sys.exit(0 if wrong is None else 1)


if __name__ == "__main__":
    main()
