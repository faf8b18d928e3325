"""One Tarn server of a test's own: on free ports, in a folder of its own, bounded in memory, and stopped by its process
id alone.

Whoever starts one stops it: `with Server(…) as server`. If the test itself dies, its end of the server's stdin closes,
and the server stops, too.
"""

import dataclasses
import os
import pathlib
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Sequence

CGROUPS = pathlib.Path("/sys/fs/cgroup")


class DidNotStart(Exception):
    """The server ended, or said nothing, before it was ready. The text is the end of its log."""


class Cage:
    """Bounds a process's memory: by a cgroup of version 1 or 2 where this user may make one, else by looking at its RSS
    and killing it."""

    def __init__(self, bytes_: int):
        self.bytes = bytes_
        self.folder: pathlib.Path | None = None
        name = f"tarn-test-{os.getpid()}-{id(self):x}"
        places = [("memory/cgroup.procs", CGROUPS / "memory" / name, "memory.limit_in_bytes")]
        places += [("cgroup.controllers", CGROUPS / name, "memory.max")]
        for mark, folder, limit in places:
            try:
                if not (CGROUPS / mark).exists():
                    continue
                folder.mkdir()
                (folder / limit).write_text(str(bytes_))
                self.folder = folder
                break
            except OSError:
                if folder.is_dir():
                    folder.rmdir()

    def enter(self) -> None:
        """Called in the child, before it becomes the server."""
        if self.folder is not None:
            (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        if self.folder is not None:
            for _ in range(50):  # the kernel lets go of a dead process a moment later
                try:
                    self.folder.rmdir()
                    return
                except OSError:
                    time.sleep(0.05)


@dataclasses.dataclass
class Options:
    """What a server is started with beside its folder. `flags` are `tarn serve`'s own."""

    flags: Sequence[str] = ()
    memory_bytes: int | None = None
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    open_files: int | None = None
    nice: int = 5


class Server:
    def __init__(
        self, tarn: pathlib.Path, folder: pathlib.Path, options: Options | None = None, data: pathlib.Path | None = None
    ):
        """`folder` gets `server.log` and, unless it lies elsewhere, `data`, which may be that of a server that ran
        before."""
        self.tarn, self.folder, self.options = tarn, folder, options or Options()
        self.data = data or folder / "data"
        self.log_path = folder / "server.log"
        self.peak_rss_bytes = 0
        self.over_memory = False
        self._process: subprocess.Popen | None = None
        self._cage: Cage | None = None
        self._log_start = 0

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, timeout_s: float = 120) -> None:
        """Returns when it is ready; `DidNotStart` if it ends or takes longer."""
        assert self._process is None, "the server runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        options = self.options
        self._cage = Cage(options.memory_bytes) if options.memory_bytes else None
        command = [str(self.tarn), "serve", "--stop-when-stdin-closes", "--data-dir", str(self.data)]
        command += ["--pg-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", *options.flags]
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.over_memory = False
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=self._before_exec,
                env=dict(os.environ, **options.environment),
            )
        threading.Thread(target=self._watch_memory, args=(self._process,), daemon=True).start()
        ready = self._ready_line(time.monotonic() + timeout_s)
        if ready is None:
            code = self._process.poll()
            self.kill()
            raise DidNotStart(f"{'took too long' if code is None else f'ended with {code}'}: {self.log()[-4000:]}")
        addresses = dict(part.split("=") for part in ready.split()[1:])
        self.port = int(addresses["postgres"].rsplit(":", 1)[1])
        self.http = addresses["http"]
        self.http_port = int(self.http.rsplit(":", 1)[1])

    def _before_exec(self) -> None:
        if self.options.nice:
            os.nice(self.options.nice)
        if self._cage is not None:
            self._cage.enter()
        if self.options.open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.options.open_files, self.options.open_files))

    def _ready_line(self, deadline: float) -> str | None:
        said, out = b"", self._process.stdout
        while time.monotonic() < deadline:
            if not select.select([out], [], [], 0.2)[0]:
                if self._process.poll() is not None:
                    return None
                continue
            chunk = os.read(out.fileno(), 4096)
            if not chunk:
                self._process.wait()
                return None
            said += chunk
            for line in said.decode(errors="replace").splitlines():
                if line.startswith("ready ") and said.endswith(b"\n"):
                    return line
        return None

    def _watch_memory(self, process: subprocess.Popen) -> None:
        while process.poll() is None:
            rss = rss_bytes(process.pid)
            self.peak_rss_bytes = max(self.peak_rss_bytes, rss)
            limit = self.options.memory_bytes
            if limit is not None and rss > limit and (self._cage is None or self._cage.folder is None):
                self.over_memory = True
                process.kill()
            time.sleep(0.1)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def dsn(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=tarn dbname=tarn connect_timeout=20"

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def death(self) -> str:
        """How it ended, in a word."""
        if self._process is None:
            return "was stopped"
        code = self._process.poll()
        if code is None:
            return "runs"
        if code == -signal.SIGKILL:
            return "was killed: more memory than it may have"
        return f"ended with {code}"

    def rss_bytes(self) -> int:
        return rss_bytes(self.pid) if self.is_alive() else 0

    def signal(self, number: signal.Signals) -> None:
        if self.is_alive():
            self._process.send_signal(number)

    def stop(self, timeout_s: float = 60) -> int | None:
        """Asks it to stop; kills it if it takes longer. Its exit code, `None` if it had to be killed."""
        if self._process is None:
            return 0
        self.signal(signal.SIGTERM)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        self.kill()
        return code

    def kill(self) -> None:
        """kill -9, and everything that was made for it is gone but its folder."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        if self._cage is not None:
            self._cage.remove()
            self._cage = None

    def log(self) -> str:
        """What it wrote on stderr since it was last started."""
        with open(self.log_path, "rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def panics(self) -> list[str]:
        lines = self.log().splitlines()
        return [" | ".join(lines[idx : idx + 2]) for idx, line in enumerate(lines) if "panicked at" in line]


def rss_bytes(pid: int) -> int:
    """Resident memory of a process; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0
