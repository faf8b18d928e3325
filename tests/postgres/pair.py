"""One file's statements, one after the other, on PostgreSQL and on Tarn.

The two are kept in step, so that what one of them refused spoils as little as possible of what follows:

- a table that only PostgreSQL has, or whose content differs by a refused write, is brought over (tables.py) before a
  statement names it; what would write a stand-in of files is done by PostgreSQL alone;
- a transaction that only Tarn gave up is begun anew there, one that only PostgreSQL gave up fails in Tarn, too;
- a setting that one of them refused is not changed on the other.
"""

import dataclasses
import pathlib
import re

import compare
from compare import ACCEPTED, MISSING, NOT_COMPARED, WRONG, Verdict
from script import WORD, Script, Text, bare, tokens
from server import Server
from tables import OutOfStep, Tables
from wire import Answer, Wire

# A statement's own limit is set on both servers; a server that is silent for so much longer hangs.
STATEMENT_TIMEOUT_S = 10
PATIENCE_S = 3.0 * STATEMENT_TIMEOUT_S
MAX_ROWS = 200_000
# As PostgreSQL's own runner has it; the forms of dates and intervals are those that Tarn has.
SETTINGS = {"timezone": "America/Los_Angeles", "datestyle": "ISO, MDY", "intervalstyle": "postgres"}
# Where SQL leaves the order open, PostgreSQL's is that of the rows. So is Tarn's if it does not share the work out.
TARN_SETTINGS = SETTINGS | {"datafusion.execution.target_partitions": "1"}
DATABASE = "tarn"
HAS_SEQUENCES = "SELECT FROM pg_catalog.pg_sequences LIMIT 1"

# What begins so and names no target of a write changes no table.
READS = ("SELECT", "VALUES", "TABLE", "WITH", "SHOW", "FETCH", "MOVE", "DECLARE", "CLOSE", "PREPARE", "DEALLOCATE")
READS += ("SET", "RESET", "BEGIN", "START", "SAVEPOINT", "RELEASE", "ANALYZE", "VACUUM", "COMMENT", "(")
TARGET = r'(?:ONLY\s+)?(?:\w+\s*\.\s*)?("(?:[^"]|"")*"|\w+)'
WRITE = re.compile(
    r"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO|TRUNCATE(?:\s+TABLE)?|COPY|LOCK(?:\s+TABLE)?|"
    rf"(?:ALTER|DROP)\s+(?:MATERIALIZED\s+)?(?:TABLE|VIEW)(?:\s+IF\s+EXISTS)?)\s+{TARGET}",
    re.IGNORECASE,
)
COPY_OUT = re.compile(r"COPY\b.*\bTO\b", re.IGNORECASE | re.DOTALL)
# What may change the answers to later statements about a table without being a write of rows.
SCHEMA = re.compile(r"(?:ALTER\s+TABLE|CREATE\s+UNIQUE\s+INDEX|CREATE\s.*\b(?:TRIGGER|RULE)\b|DROP\s)", re.I | re.S)
CREATED = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:GLOBAL|LOCAL)\s+)?(?:TEMP(?:ORARY)?\s+|UNLOGGED\s+)?(?:RECURSIVE\s+)?"
    rf"(?:TABLE|VIEW)\s+(?:IF\s+NOT\s+EXISTS\s+)?{TARGET}",
    re.IGNORECASE,
)
SETTING = re.compile(r"(?:SET|RESET)\s+(?:(SESSION|LOCAL)\s+)?(TIME\s+ZONE|[\w.]+)", re.IGNORECASE)
FILE = re.compile(r"COPY\b.*\b(?:FROM|TO)\s+(?:PROGRAM\s+)?'", re.IGNORECASE | re.DOTALL)
# Reads what the server says of tables and other things that it has.
CATALOG = re.compile(r"\bpg_(?!typeof)\w+|information_schema|current_schemas|::reg|\bhas_\w+_privilege", re.IGNORECASE)
# The type of what a catalog numbers its things by.
OID = 26
# What takes numbers of a sequence, and what may change what it gives next.
DRAWS = re.compile(r"\b(?:nextval|setval|INSERT|COPY)\b", re.IGNORECASE)
STEPS = re.compile(r"\b(?:nextval|setval|INSERT|COPY|MERGE|UPDATE|TRUNCATE|SEQUENCE|IDENTITY|CALL)\b", re.IGNORECASE)
# Functions of a script.
DROPPED_FUNCTION = re.compile(
    r"DROP\s+(?:FUNCTION|PROCEDURE|AGGREGATE)\s+(?:IF\s+EXISTS\s+)?(?:\w+\.)?(\w+)", re.IGNORECASE
)
FUNCTION = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE|AGGREGATE)\s+(?:\w+\.)?(\w+)", re.IGNORECASE)
PREPARE = re.compile(r"PREPARE\s+(\w+)", re.IGNORECASE)
EXECUTE = re.compile(r"EXECUTE\s+(\w+)", re.IGNORECASE)
# What PostgreSQL refuses because something else is there: that is named in what it says.
NAMED = re.compile(r'"([^"]+)"|\b(?:table|view|relation|sequence) (\w+)')
DEPENDS = re.compile(r"depend|referenced|references|violates foreign key|uses its row type", re.IGNORECASE)
# Tarn has no partitions.
OF_PARTITIONS = re.compile(r"violates partition constraint")
LIKE = re.compile(rf"\bLIKE\s+{TARGET}", re.IGNORECASE)
DDL = re.compile(r"(?:CREATE|ALTER|DROP|COMMENT|GRANT|REVOKE)\b", re.IGNORECASE)
OF_THE_SERVER = re.compile(r"LOAD\b|CREATE\b.*\bLANGUAGE\s+C\b|.*\blo_(?:im|ex)port\b", re.IGNORECASE | re.DOTALL)


@dataclasses.dataclass
class Step:
    """A statement and what came of it."""

    text: Text
    verdict: Verdict
    postgres: Answer | None = None
    tarn: Answer | None = None


@dataclasses.dataclass
class Setting:
    """What a SET or RESET is about to change: its value before, and whether for the transaction alone."""

    name: str
    value: str
    is_local: bool


class Pair:
    def __init__(self, postgres_port: int, server: Server, folder: pathlib.Path):
        self.postgres = connected(postgres_port, SETTINGS)
        self.tarn = connected(server.port, TARN_SETTINGS)
        self.tables = Tables(self.postgres, connected(server.port, TARN_SETTINGS), self.tarn, folder)
        # In no transaction (I), in one (T), or in a failed one (E): as each server said last.
        self.postgres_status = self.tarn_status = "I"
        # Did PostgreSQL alone make or change something, so that the catalogs differ by it?
        self.is_ahead = False
        # Did it write alone in this transaction? Then what its COMMIT finds wrong says nothing of Tarn's.
        self.wrote_alone = False
        # Did it draw the last number of its sequences alone? Then `lastval` is of another sequence.
        self.drew_alone = False
        # Were sequences set in this transaction? PostgreSQL's may go back when it ends.
        self.stepped_in_transaction = False
        # Functions that PostgreSQL alone has, and the names of what was prepared.
        self.functions: set[str] = set()
        self.prepared: dict[str, set[str]] = {}
        # Is the transaction of another isolation, as Tarn refuses PostgreSQL's?
        self.is_other_isolation = False
        # Settings that were changed since BEGIN: lost, too.
        self.set_in_transaction: list[str] = []
        # Tables that were written since BEGIN: lost in Tarn when it has to begin the transaction anew.
        self.written_in_transaction: set[str] = set()

    def close(self) -> None:
        for wire in (self.postgres, self.tarn, self.tables.tarn):
            wire.close()
        self.tables.close()

    def run(self, script: Script, text: Text) -> Step:
        sql = bare(text.sql)
        if re.match(r"EXPLAIN\b", sql, re.IGNORECASE):
            return Step(text, Verdict(NOT_COMPARED, "EXPLAIN"))
        names = identifiers(sql)
        if executed := EXECUTE.match(sql):
            names |= self.prepared.get(executed.group(1).lower(), set())
        reason = self.why_alone(text, sql, names)
        before = self.setting(sql)
        given: list[bytes] = []

        def from_script() -> bytes:
            given.append(script.copy_data())
            return given[-1]

        was_open = self.postgres_status == "T"
        theirs = self.postgres.ask(text.sql, PATIENCE_S, data=from_script)
        self.postgres_status = theirs.status
        ours, differs = None, False
        if reason is None:
            again = iter(given)
            ours = self.tarn.ask(text.sql, PATIENCE_S, data=lambda: next(again, None))
            self.tarn_status = ours.status
            verdict = compare.judge(text.sql, theirs, ours)
            differs = verdict.outcome in (WRONG, ACCEPTED)
            if differs and (excuse := self.excuse(sql, names, was_open, theirs, ours)):
                verdict = Verdict(NOT_COMPARED, excuse)
        else:
            verdict = Verdict(NOT_COMPARED, reason)
        self.after(sql, names, theirs, ours, verdict, differs, was_open, before)
        self.variables(script, text, theirs)
        return Step(text, verdict, theirs, ours)

    def excuse(self, sql: str, names: set[str], was_open: bool, theirs: Answer, ours: Answer) -> str | None:
        """Why a difference is none of this statement's."""
        if self.tables.is_approximate(names):
            return "a stand-in lacks a type"
        if CATALOG.search(sql) and (self.is_ahead or self.tables.has_stand_ins()):
            return "the catalog of what Tarn refused"
        if CATALOG.search(sql) and not theirs.error and only_ids_differ(theirs, ours):
            return "numbers of the catalog's own"
        if was_open and theirs.status == "I" and self.wrote_alone:
            return "ends a transaction that wrote stand-ins"
        if theirs.error and OF_PARTITIONS.search(str(theirs.error)):
            return "a partition, which Tarn refused"
        if theirs.error and any(f'function "{name}"' in theirs.error.everything() for name in self.functions):
            return "calls a function that Tarn refused"
        if theirs.error and DEPENDS.search(said := theirs.error.everything()) and self.rests_on_refused(said):
            return "rests on what Tarn refused"
        if any(re.search(rf"\b{re.escape(name)}\s*\(", sql, re.IGNORECASE) for name in self.functions):
            return "calls a function that Tarn refused"
        if self.drew_alone and re.search(r"\blastval\b", sql, re.IGNORECASE):
            return "the last number is of a sequence that Tarn refused"
        if self.is_other_isolation and re.match(r"SHOW\s+transaction_isolation", sql, re.IGNORECASE):
            return "an isolation that Tarn refused"
        return None

    def rests_on_refused(self, said: str) -> bool:
        """Does an error name a thing that Tarn has not, or has as a stand-in?"""
        names = {quoted or word for quoted, word in NAMED.findall(said)}
        return self.tables.lacks(names | {part for name in names for part in name.split(".")})

    def why_alone(self, text: Text, sql: str, names: set[str]) -> str | None:
        """Why a statement is PostgreSQL's alone, if it is; else what it names is brought to Tarn."""
        if FILE.match(sql) or OF_THE_SERVER.match(sql):
            return "the server's files"
        if text.ended_by in ("gexec", "gdesc", "crosstabview"):
            return "psql's own"
        if self.postgres_status == "E":
            return None
        try:
            self.tables.bring(names, self.postgres_status == "T")
        except OutOfStep as error:
            return f"not brought over: {error}"
        written = set() if COPY_OUT.match(sql) else {plain(name) for name in WRITE.findall(sql)}
        if any(self.tables.is_read_only(name) for name in written):
            return "writes a stand-in"
        return None

    def again(self, server: Server) -> None:
        """After Tarn hung or left: it has a fresh session's state, and no tables yet."""
        self.tarn.close()
        self.tables.tarn.close()
        if self.postgres_status != "I":
            self.postgres_status = self.postgres.ask("ROLLBACK").status
        self.tarn, self.tarn_status = connected(server.port, TARN_SETTINGS), "I"
        self.tables.tarn, self.tables.script = connected(server.port, TARN_SETTINGS), self.tarn
        for name in list(self.tables.placed):
            self.tables.drop(name)
        self.tables.look()

    def after(
        self,
        sql: str,
        names: set[str],
        theirs: Answer,
        ours: Answer | None,
        verdict: Verdict,
        differs: bool,
        was_open: bool,
        before: Setting | None,
    ) -> None:
        """Brings transactions, settings and tables into step again."""
        agreed = ours is not None and verdict.outcome != MISSING and not (differs and theirs.error)
        is_alone = not agreed and not theirs.error
        if (made := FUNCTION.match(sql)) and is_alone:
            self.functions.add(made.group(1).lower())
        if (gone := DROPPED_FUNCTION.match(sql)) and not theirs.error:
            self.functions.discard(gone.group(1).lower())
        if (made := PREPARE.match(sql)) and agreed and not theirs.error:
            self.prepared[made.group(1).lower()] = names
        if DRAWS.search(sql) and not theirs.error:
            self.drew_alone = is_alone
        if not theirs.error and theirs.status == "I":
            self.is_other_isolation = False
        self.is_ahead |= not agreed and not theirs.error and DDL.match(sql) is not None
        self.wrote_alone |= (ours is None or (is_alone and is_write(sql))) and theirs.status == "T"
        known = self.tables.named_in(names)
        if not agreed:
            # A query may call functions that write.
            self.tables.make_copies_stale()
        self.same_transaction()
        if is_alone and STEPS.search(sql) and theirs.status != "E" and self.postgres.must(HAS_SEQUENCES).rows:
            self.tables.step_sequences()
            self.stepped_in_transaction |= theirs.status == "T"
        if ours is not None:
            self.same_setting(before, theirs, ours)
        if before is not None and agreed and not theirs.error and theirs.status == "T":
            self.set_in_transaction.append(sql)
        elif theirs.status == "I":
            self.set_in_transaction.clear()
        if was_open and theirs.status == "I":
            self.tables.transaction_undone()
            if self.stepped_in_transaction:
                self.tables.step_sequences()
            self.stepped_in_transaction = False
            if not agreed:
                self.tables.make_stale(self.written_in_transaction)
            self.written_in_transaction.clear()
            self.wrote_alone = False
            self.tables.transaction_ended()
        elif not is_write(sql) or (agreed and theirs.error):
            return
        if theirs.status == "T":
            self.written_in_transaction |= known
        if ours is not None:
            self.tables.written(known)
        if verdict.outcome == ACCEPTED and (created := CREATED.match(sql)):
            name = plain(created.group(1))
            if name not in self.tables.placed:
                self.tables.remove(name)
        created = CREATED.match(sql)
        # Made like a stand-in, which has not all that the table has.
        is_less = created is not None and any(map(self.tables.is_read_only, map(plain, LIKE.findall(sql))))
        if is_less and agreed and created:
            self.tables.remove(plain(created.group(1)))
        if not agreed or differs:
            # Whatever it names: views, rules, triggers and functions write other tables, too.
            self.tables.make_stale(set(self.tables.placed))
        if verdict.outcome == MISSING and SCHEMA.match(sql):
            for name in known & self.tables.placed.keys():
                self.tables.drop(name)
        both_wrote = agreed and not differs and ours is not None and theirs.status == "T"
        self.tables.make_copies_stale(but=frozenset(known) if both_wrote else frozenset())
        if theirs.status != "E":
            self.tables.look(both_made=agreed and not theirs.error and not is_less)

    def same_transaction(self) -> None:
        """Tarn is in a transaction, a failed one, or in none, as PostgreSQL is."""
        if self.postgres_status == self.tarn_status:
            return
        if self.tarn_status == "E" or self.postgres_status == "I":
            self.tarn.ask("ROLLBACK")
            self.tarn_status = "I"
            self.tables.transaction_undone()
        if self.tarn_status == "I" and self.postgres_status != "I":
            self.tarn_status = self.begun()
            for sql in self.set_in_transaction if self.tarn_status == "T" else []:
                self.tarn.ask(sql)
            self.tables.make_stale(self.written_in_transaction)
            self.written_in_transaction.clear()
        if self.postgres_status == "E":
            self.tarn_status = self.tarn.ask("this is no statement").status

    def begun(self) -> str:
        """Begins Tarn's transaction anew, in PostgreSQL's modes if it takes them."""
        if self.postgres_status == "T":
            shown = "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')"
            level, read_only = self.postgres.must(shown).rows[0]
            mode = "READ ONLY" if read_only == "on" else "READ WRITE"
            for begin in (f"BEGIN ISOLATION LEVEL {level} {mode}", f"BEGIN {mode}"):
                if self.tarn.ask(begin).status == "T":
                    return "T"
                self.is_other_isolation = True
        return self.tarn.ask("BEGIN").status

    def setting(self, sql: str) -> Setting | None:
        """The setting that a statement is about to change, if it is one of SET or RESET."""
        found = SETTING.match(sql)
        if found is None or self.postgres_status == "E":
            return None
        name = "timezone" if found.group(2).upper().startswith("TIME") else found.group(2).lower()
        if name in ("transaction", "session", "constraints", "all", "local"):
            return None
        name = "session_authorization" if "AUTHORIZATION" in sql.upper() else name
        value = self.postgres.must(f"SELECT pg_catalog.current_setting('{name}', true)").scalar()
        return None if value is None else Setting(name, value, (found.group(1) or "").upper() == "LOCAL")

    def same_setting(self, before: Setting | None, theirs: Answer, ours: Answer) -> None:
        if before is None or bool(theirs.error) == bool(ours.error):
            return
        if ours.error:
            changed = f"'{before.name}', {literal(before.value)}, {str(before.is_local).lower()}"
            self.postgres.ask(f"SELECT pg_catalog.set_config({changed})")
        elif self.tarn_status != "E":
            self.tarn.ask(f"SET {before.name} = {literal(before.value)}")

    def variables(self, script: Script, text: Text, theirs: Answer) -> None:
        if text.ended_by == "gset" and len(theirs.rows) == 1:
            for name, value in zip(theirs.names, theirs.rows[0]):
                script.variables[text.argument + name] = value or ""
        if "standard_conforming_strings" in text.sql and not theirs.error and self.postgres_status != "E":
            # The script goes on in the spelling that it asked for, even where Tarn, and so both, keep the other.
            script.backslashes = re.search(r"\boff\b", text.sql, re.IGNORECASE) is not None


def only_ids_differ(theirs: Answer, ours: Answer) -> bool:
    """Are two answers the same but for the numbers that a catalog gave?"""
    if len(theirs.rows) != len(ours.rows) or any(len(a) != len(b) for a, b in zip(theirs.rows, ours.rows)):
        return False
    cells = (cell for a, b in zip(theirs.rows, ours.rows) for cell in zip(a, b, theirs.oids))
    return all(a == b or oid == OID for a, b, oid in cells)


def connected(port: int, settings: dict[str, str]) -> Wire:
    wire = Wire(port, PATIENCE_S, database=DATABASE, settings=settings)
    wire.max_rows_kept = MAX_ROWS
    return wire


def is_write(sql: str) -> bool:
    return not sql.upper().startswith(READS) or bool(WRITE.search(sql) or re.search(r"\bINTO\b", sql, re.IGNORECASE))


def identifiers(sql: str) -> set[str]:
    return {plain(token.text) for token in tokens(sql) if token.kind in (WORD, "quoted")}


def plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
