"""Does `tarn sql` work on a terminal? A pseudo terminal types, completes, pages, cancels, and leaves."""

import fcntl
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import termios
import time

TARN = os.environ["TARN"]
FOLDER = pathlib.Path(os.environ["TARN_TEST_DIR"])
TIMEOUT_S = 30
PROMPT = "tarn=> "


class Terminal:
    """`tarn sql` with a terminal of its own."""

    def __init__(self, columns=80, lines=24, **environment):
        self.process, self.end = pty.fork()
        if self.process == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            own = {"TERM": "xterm", "NO_COLOR": "1", "XDG_DATA_HOME": str(FOLDER), "PAGER": ""}
            os.execve(TARN, [TARN, "sql"], {**os.environ, **own, **environment})
        self.seen = ""

    def type(self, text):
        os.write(self.end, text.encode())

    def read(self, timeout_s):
        """What it wrote meanwhile; false if it is gone."""
        ready, _, _ = select.select([self.end], [], [], timeout_s)
        try:
            piece = os.read(self.end, 65536) if ready else b""
        except OSError:  # the other end is closed
            return False
        self.seen += piece.decode(errors="replace")
        return bool(piece) or not ready

    def until(self, wanted):
        """All that was written up to `wanted`, and forgets it."""
        deadline = time.monotonic() + TIMEOUT_S
        while wanted not in self.seen:
            assert time.monotonic() < deadline and self.read(0.2), f"no {wanted!r} in {self.seen!r}"
        before, _, self.seen = self.seen.partition(wanted)
        return before + wanted

    def run(self, text, wanted):
        """Types a line, waits for a text and for the next prompt."""
        self.type(text + "\r")
        return self.until(wanted) + self.until(PROMPT)

    def complete(self, text, wanted):
        """Types a text and Tab, again if what completes it was not known yet."""
        self.type(text)
        deadline = time.monotonic() + TIMEOUT_S
        while wanted not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} is not completed to {wanted!r}: {self.seen!r}"
            self.type("\t")
            self.read(0.5)
        self.seen = ""

    def exit_code(self):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            self.read(0.05)
            done, status = os.waitpid(self.process, os.WNOHANG)
            if done:
                os.close(self.end)
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, f"it does not end: {self.seen!r}"


def wait_until(condition):
    """Waits for a condition of the server's sessions."""
    deadline = time.monotonic() + TIMEOUT_S
    query = f"SELECT count(*) > 0 FROM pg_stat_activity WHERE {condition}"
    while subprocess.run([TARN, "sql", "-Atc", query], capture_output=True, text=True).stdout != "t\n":
        assert time.monotonic() < deadline, f"never: {condition}"


def types_and_completes():
    terminal = Terminal()
    greeting = terminal.until(PROMPT)
    version = subprocess.run([TARN, "--version"], capture_output=True, text=True).stdout.split()[1]
    assert greeting.count(version) == 1 and "PostgreSQL" not in greeting, greeting
    terminal.run("CREATE TABLE trips (city text PRIMARY KEY, fare numeric(10, 2));", "CREATE TABLE")
    terminal.run("INSERT INTO trips VALUES ('Bern', 12.50);", "INSERT 0 1")
    # A keyword, a table that was made a moment ago, and its column.
    terminal.complete("sel", "select")
    terminal.complete(" fare from tri", "trips")
    terminal.complete(" where ci", "city")
    terminal.run(" = 'Bern';", "12.50")
    # Several lines are one statement, which is remembered whole.
    terminal.run("SELECT city\rFROM trips;", "(1 row)")
    terminal.type("\x1b[A")
    terminal.until("FROM trips;")
    terminal.run("", "(1 row)")
    terminal.run("SELECT nope;", "ERROR 42703")
    # A command within a statement says what to do, and nothing is lost.
    terminal.type("SELECT 42\r\\dt\r")
    terminal.until("is not ended")
    terminal.until("SELECT 42")
    terminal.run(" AS answer;", "(1 row)")
    terminal.run("help", "\\watch")
    terminal.type("BEGIN;\r")
    terminal.until("tarn=*> ")
    terminal.type("ROLLBACK;\r")
    terminal.until(PROMPT)
    terminal.type("exit\r")
    assert terminal.exit_code() == 0
    history = (FOLDER / "tarn" / "history").read_text()
    assert "SELECT city\\nFROM trips;" in history, history


def fits_the_screen():
    terminal = Terminal(columns=60, lines=20)
    terminal.until(PROMPT)
    cut = terminal.run("SELECT repeat('x', 200) AS long, 1 AS n, 'short' AS s;", "values are cut")
    assert all(len(line) <= 60 for line in cut.splitlines() if "│" in line), cut
    many = ", ".join(f"'value {n}' AS column_{n}" for n in range(9))
    terminal.run(f"SELECT {many};", "column_8 │ value 8")
    terminal.run("\\x on", "expanded is on")
    terminal.run("SELECT 1 AS a;", "a │ 1")
    terminal.run("\\x auto", "expanded is auto")
    terminal.run("\\pset limit 100", "at most 100 rows")
    terminal.run("SELECT * FROM generate_series(1, 3000000) AS g;", "the first 100 rows, and there are more")
    terminal.run("SELECT 1 + 1 AS two;", "two")
    terminal.type("\\q\r")
    assert terminal.exit_code() == 0


def pages():
    terminal = Terminal(PAGER="sed -u 's/^/paged /'")
    terminal.until(PROMPT)
    terminal.run("SELECT * FROM generate_series(1, 50) AS g;", "paged (50 rows)")
    short = terminal.run("SELECT 1;", "(1 row)")
    assert "paged" not in short, short
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    # Who leaves the pager early is not told of a broken pipe.
    terminal = Terminal(PAGER="head -n 3")
    terminal.until(PROMPT)
    terminal.run("\\pset limit 0", "all rows")
    left = terminal.run("SELECT * FROM generate_series(1, 100000) AS g;", "g")
    assert "rror" not in left, left
    terminal.run("SELECT 1;", "(1 row)")
    terminal.type("\\q\r")
    assert terminal.exit_code() == 0


def cancels():
    terminal = Terminal()
    terminal.until(PROMPT)
    terminal.type("SELECT pg_sleep(60);\r")
    wait_until("state = 'active' AND query LIKE 'SELECT pg_sleep%'")
    terminal.type("\x03")
    terminal.until("57014")
    terminal.until(PROMPT)
    terminal.run("SELECT 1;", "(1 row)")
    terminal.type("SELECT 1 \\watch 0.2\r")
    for _ in range(3):
        terminal.until("(1 row)")
    terminal.type("\x03")
    terminal.until(PROMPT)
    # What is typed is dropped; twice leaves.
    terminal.type("SELECT")
    terminal.until("SELECT")
    terminal.type("\x03")
    terminal.until("Ctrl-C again leaves")
    terminal.until(PROMPT)
    terminal.type("\x03")
    assert terminal.exit_code() == 130


def connects_again():
    """A connection that the server ends is made anew, and said."""
    terminal = Terminal()
    terminal.until(PROMPT)
    terminal.type("SELECT 'pid=' || pg_backend_pid() AS pid;\r")
    told = terminal.until("(1 row)")
    pid = told.split("pid=")[-1].split()[0]
    other = Terminal()
    other.until(PROMPT)
    other.run(f"SELECT pg_terminate_backend({pid});", "(1 row)")
    other.type("\\q\r")
    assert other.exit_code() == 0
    terminal.until(PROMPT)
    wait_until(f"NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = {pid})")
    terminal.type("SELECT 'her' || 'e' AS again;\r")
    told = terminal.until("connected again") + terminal.until("was not run") + terminal.until("AS again;")
    assert "here" not in told, told
    terminal.run("", "here")
    os.kill(terminal.process, signal.SIGTERM)
    terminal.exit_code()


for part in (types_and_completes, fits_the_screen, pages, cancels, connects_again):
    part()
print("tarn sql on a terminal: passed")
