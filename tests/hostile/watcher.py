"""The second client: reads rows by key all the time, in a process of its own, while somebody attacks the server.

    watcher.py PORT FILE     appends (started, seconds) of each read to FILE as two doubles; seconds < 0: it failed

Times are those of the system's monotonic clock, which all processes share. It ends when its stdin is closed.
"""

import pathlib
import select
import struct
import subprocess
import sys
import time

from wire import Hung, Left, ServerError, Wire

N_KEYS = 100
PAUSE_S = 0.02
# No answer for so long is a hang.
HANG_S = 30.0
RECORD = struct.Struct("dd")


def prepare(port: int) -> None:
    with Wire(port) as wire:
        wire.must("CREATE TABLE IF NOT EXISTS watched (id int PRIMARY KEY, v text)")
        for idx in range(N_KEYS):
            wire.must(f"INSERT INTO watched VALUES ({idx}, 'value {idx}') ON CONFLICT DO NOTHING")


class Watcher:
    def __init__(self, port: int, folder: pathlib.Path):
        self.file = folder / "watched.bin"
        self.file.unlink(missing_ok=True)
        self.file.touch()
        self.started = time.monotonic()
        self._read_bytes = 0
        self.reads: list[tuple[float, float]] = []
        self.process = subprocess.Popen([sys.executable, __file__, str(port), str(self.file)], stdin=subprocess.PIPE)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    def look(self) -> None:
        """Takes in what the process has written."""
        with open(self.file, "rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        whole = len(data) // RECORD.size * RECORD.size
        self._read_bytes += whole
        self.reads += RECORD.iter_unpack(data[:whole])

    def silent_s(self) -> float:
        """Seconds since the last right answer."""
        self.look()
        last = next((at + took for at, took in reversed(self.reads) if took >= 0), self.started)
        return time.monotonic() - last

    def longest_gap_s(self) -> float:
        """The longest time between two right answers, with what is not answered now."""
        self.look()
        answered = [self.started] + [at + took for at, took in self.reads if took >= 0] + [time.monotonic()]
        return max(later - earlier for earlier, later in zip(answered, answered[1:]))

    def p99_ms(self, since: float = 0.0, until: float = float("inf")) -> float:
        self.look()
        times = sorted(took for at, took in self.reads if took >= 0 and since <= at < until)
        return times[min(len(times) - 1, len(times) * 99 // 100)] * 1000 if times else float("nan")


def watch(port: int, path: str) -> None:
    wire, idx = None, 0
    with open(path, "ab", buffering=0) as file:
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            idx += 1
            key, started = idx % N_KEYS, time.monotonic()
            try:
                if wire is None:
                    wire = Wire(port, HANG_S)
                answer = wire.ask(f"SELECT v FROM watched WHERE id = {key}", HANG_S)
                right = answer.rows == [[f"value {key}"]]
            except (Hung, Left, ServerError, OSError):
                wire, right = None, False
            file.write(RECORD.pack(started, time.monotonic() - started if right else -1.0))


if __name__ == "__main__":
    watch(int(sys.argv[1]), sys.argv[2])
