"""The two servers, and when their answers are the same.

A Tarn that says no before it does anything (0A000 not supported, or the planner's errors of class 42) is counted, not
compared: nothing is wrong in
silence. `is_strict` compares the planner's errors, too. Whatever else only one of the two refuses is a difference.
Numbers are compared by value, floats by their shortest text (−0 is 0, which of the two a group shows is open; of stored rows it tells), everything else by its text.
"""

import collections
import decimal
import math
import pathlib
import tempfile
import urllib.parse

import wire as protocol
from server import Options, Server
from wire import Answer, Hung, Left, Wire

from .steps import Script, Step

PATIENCE_S = 60.0
INTEGERS, FLOATS, NUMERIC = (20, 21, 23), (700, 701), 1700
UNSUPPORTED = "0A000"
REFUSED = "refused in all"
OUT_OF_MEMORY = "53200"
MANY_ROWS = 100_000
# Of answers with more, the counts alone are compared.
MAX_ROWS = 500_000


class Difference(Exception):
    """What the two do not agree on. `is_lasting`: their tables differ from now on."""

    def __init__(self, text: str, is_lasting: bool = False):
        super().__init__(text)
        self.is_lasting = is_lasting


class Postgres:
    """A database of its own, emptied for each round."""

    def __init__(self, url: str):
        parts = urllib.parse.urlsplit(url)
        self.port, self.database = parts.port, parts.path.lstrip("/")
        self.wire = Wire(self.port, PATIENCE_S, database=self.database)
        self.wire.max_rows_kept = MAX_ROWS
        self.wire.must("SET timezone = 'UTC'")
        self.wire.must("SET statement_timeout = '20s'")
        self.wire.must("SET client_min_messages = 'error'")

    def empty(self) -> None:
        self.wire.must("DROP SCHEMA public CASCADE")
        self.wire.must("CREATE SCHEMA public")


class Tarn:
    """A server on a folder of its own."""

    def __init__(self, tarn: pathlib.Path, flags: tuple[str, ...]):
        self.folder = tempfile.TemporaryDirectory(prefix="tarn-fuzz-")
        all_flags = ("--statement-timeout-ms", "20s", *flags)
        self.server = Server(tarn, pathlib.Path(self.folder.name), Options(all_flags))
        self.server.start()
        self.wire = self.connected()
        self.panics: list[str] = []

    def again(self, kill: bool) -> None:
        self.panics += self.server.panics()
        self.wire.close()
        if kill:
            self.server.kill()
        else:
            self.server.stop()
        self.server.start()
        self.wire = self.connected()

    def connected(self) -> Wire:
        wire = Wire(self.server.port, PATIENCE_S)
        wire.max_rows_kept = MAX_ROWS
        return wire

    def close(self) -> None:
        self.wire.close()
        self.server.kill()
        self.folder.cleanup()


class Counts(collections.Counter):
    """How many steps of each kind there were, and how many were not compared."""


class Pair:
    """Both sides of one round."""

    def __init__(self, tarn: Tarn, postgres: Postgres, script: Script, counts: Counts, is_strict: bool):
        self.tarn, self.postgres, self.script, self.counts, self.is_strict = tarn, postgres, script, counts, is_strict

    def run(self, step: Step) -> None:
        self.counts[step.kind] += 1
        try:
            match step.kind:
                case "create":
                    self.tarn.wire.must(step.sql)
                    self.postgres.wire.must(step.postgres)
                case "query":
                    self.query(step)
                case "write":
                    self.write(step, lambda wire: wire.ask(self.text_for(wire, step), PATIENCE_S))
                case "copy":
                    self.write(step, lambda wire: copy(wire, step))
                case "tarn":
                    answer = self.tarn.wire.ask(step.sql, PATIENCE_S)
                    if answer.error and answer.error.state != UNSUPPORTED:
                        raise Difference(f"{step.sql}: {answer.error}")
                case "kill" | "restart":
                    self.tarn.again(step.kind == "kill")
                case "tables":
                    self.tables()
        except (Hung, Left) as error:
            raise Difference(f"{type(error).__name__}: {error}; the server {self.tarn.server.death()}", True) from error

    def text_for(self, wire: Wire, step: Step) -> str:
        return step.postgres if step.postgres and wire is self.postgres.wire else step.sql

    def query(self, step: Step) -> None:
        theirs = self.postgres.wire.ask(step.sql, PATIENCE_S)
        ours = self.tarn.wire.ask(step.sql, PATIENCE_S)
        if self.is_skipped(ours, theirs):
            return
        if ours.error or theirs.error:
            if not (ours.error and theirs.error):
                raise Difference(sides(ours, theirs))
            self.counts["both refuse"] += 1
            return
        if not same_rows(ours, theirs, step.query.ordered, step.query.approximate):
            raise Difference(sides(ours, theirs))

    def is_skipped(self, ours: Answer, theirs: Answer) -> bool:
        # A PostgreSQL that cannot (FULL JOIN of some conditions), or takes too long, says nothing about Tarn.
        if theirs.error and theirs.error.state in (UNSUPPORTED, "57014"):
            self.counts[f"skipped: postgres {theirs.error.state}"] += 1
            return True
        # A sort of joined millions may be more than a small server's memory holds.
        if ours.error and ours.error.state == OUT_OF_MEMORY and len(theirs.rows) > MANY_ROWS:
            self.counts[f"refused: {OUT_OF_MEMORY}"] += 1
            return True
        return not theirs.error and self.is_refused(ours)

    def is_refused(self, ours: Answer) -> bool:
        """Did Tarn say that it cannot?"""
        if ours.error is None:
            return False
        if ours.error.state == UNSUPPORTED or (ours.error.state.startswith("42") and not self.is_strict):
            self.counts[f"refused: {ours.error.state}"] += 1
            self.counts[REFUSED] += 1
            return True
        return False

    def write(self, step: Step, do) -> None:
        """Tarn first: what it does not support is not done on the other side either."""
        ours = do(self.tarn.wire)
        if self.is_refused(ours):
            return
        if ours.error:
            self.postgres.wire.must("BEGIN")
            theirs = do(self.postgres.wire)
            self.postgres.wire.must("ROLLBACK")
            if not theirs.error:
                raise Difference(sides(ours, theirs))
            if step.kind == "copy" and ours.error:
                # Batches before the bad row stay, as the docs say: the two are made equal again by hand.
                raise Stop
            self.counts["both refuse"] += 1
            return
        theirs = do(self.postgres.wire)
        if theirs.error or theirs.tags != ours.tags:
            raise Difference(sides(ours, theirs), True)

    def tables(self) -> None:
        for table in self.script.tables:
            sql = f"SELECT {', '.join(column.name for column in table.columns)} FROM {table.name}"
            theirs = self.postgres.wire.must(sql)
            shown = self.tarn.wire.must("SHOW tarn.access_path").scalar()
            for path in ("auto", "lake", "rows"):
                self.tarn.wire.must(f"SET tarn.access_path = '{path}'")
                ours = self.tarn.wire.ask(sql, PATIENCE_S)
                if path == "rows" and ours.error and ours.error.state == UNSUPPORTED:
                    continue
                if ours.error or not same_rows(ours, theirs, False, frozenset(), is_stored=True):
                    raise Difference(f"all of {table.name} on {path}: {sides(ours, theirs)}", True)
            self.tarn.wire.must(f"SET tarn.access_path = '{shown}'")


class Stop(Exception):
    """The round ends here, and nothing is wrong."""


def copy(wire: Wire, step: Step) -> Answer:
    wire.send(protocol.query(step.sql))
    begun = wire.until_ready(PATIENCE_S, until=b"GZ")
    if begun.error:
        return begun
    wire.send(protocol.copy_data(step.data) + protocol.COPY_DONE)
    return wire.until_ready(PATIENCE_S)


# Of an average of numerics: what is compared.
AVERAGE_PLACES = 3
AVERAGE_DIGITS = 9


def same_rows(
    ours: Answer, theirs: Answer, ordered: bool, approximate: frozenset[int], is_stored: bool = False
) -> bool:
    if ours.n_rows != theirs.n_rows:
        return False
    if ours.n_rows > len(ours.rows):
        return True  # too many to be kept
    one, other = (normal(answer, theirs.oids, approximate, is_stored) for answer in (ours, theirs))
    if not ordered:
        one, other = sorted(one, key=repr), sorted(other, key=repr)
    return one == other


def normal(answer: Answer, oids: list[int], approximate: frozenset[int], is_stored: bool) -> list[tuple]:
    return [
        tuple(cell(value, oids[idx], idx in approximate, is_stored) for idx, value in enumerate(row))
        for row in answer.rows
    ]


def cell(text: str | None, oid: int, is_approximate: bool, is_stored: bool):
    """What is compared of one value of a column that PostgreSQL has as `oid`."""
    if text is None:
        return None
    try:
        if oid in FLOATS or is_approximate:
            number = float(text)
            if math.isnan(number):
                return "NaN"
            if is_approximate and oid == NUMERIC:
                # An average of numerics has four more places than the column, and is cut there.
                return f"{round(number, AVERAGE_PLACES) + 0.0:.{AVERAGE_DIGITS}g}"
            return f"{number:.9g}" if is_approximate else repr(number if is_stored else number + 0.0)
        if oid in INTEGERS or oid == NUMERIC:
            number = decimal.Decimal(text)
            return str(number.normalize() + 0)
    except (ValueError, decimal.InvalidOperation):
        return text
    return text


def sides(ours: Answer, theirs: Answer) -> str:
    return f"\n    tarn:     {shown(ours, theirs)}\n    postgres: {shown(theirs, ours)}"


def shown(answer: Answer, other: Answer) -> str:
    if answer.error:
        return f"ERROR {answer.error}"
    if answer.tags and not answer.oids:
        return " ".join(answer.tags)
    rest = collections.Counter(map(tuple, answer.rows)) - collections.Counter(map(tuple, other.rows))
    only = f", only here: {list(rest.elements())[:4]}" if rest and other.rows else ""
    return f"{answer.n_rows} rows{only or f' {answer.rows[:6]}'}"
