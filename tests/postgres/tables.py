"""How does Tarn get the tables that a statement names, with what PostgreSQL has in them?

A table is `own` if both made it by the same statement: both write it, and it is loaded anew only after one of them
refused a write. What Tarn refused to make (a view, a type, …), a temporary table that it refused to write, which nobody
but its session can load, and what the files expect to be there before, it gets as a stand-in when a statement names it: a table with the same columns and key, if PostgreSQL's
has nothing beyond that; else Parquet files that are attached, and read only. A column whose type neither can have comes
as text: the stand-in is then `approximate`, and a wrong answer from it says nothing about Tarn.
"""

import dataclasses
import json
import pathlib
import re
import shutil

import pyarrow
from pyarrow import parquet
from wire import ServerError, Wire

# What is larger is not copied: none of the files needs it.
MAX_ROWS = 200_000
PATIENCE_S = 30.0
OWN, TABLE, FILES = "own", "table", "files"
# Digits behind the point of a column of Tarn's that is a `numeric` and no more; times of fewer digits than six are kept whole there.
NUMERIC_DIGITS = 12
SHORT_TIME = re.compile(r"time(?:stamp)?\([0-5]\)")

# Everything that a search path finds, with what a plain table would not have in the last column.
CATALOG = """
SELECT pg_catalog.json_agg(r) FROM (
  SELECT c.relname AS name, c.relkind AS kind, c.relpersistence = 't' AS temporary,
    (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(a.attname, a.atttypid::pg_catalog.regtype::text,
        pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull) ORDER BY a.attnum)
      FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
    (SELECT pg_catalog.json_agg(a.attname ORDER BY pg_catalog.array_position(i.indkey::int2[], a.attnum))
      FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
      WHERE i.indrelid = c.oid AND i.indisprimary) AS key,
    c.relkind = 'r' AND NOT c.relispartition AND NOT c.relhasrules AND NOT c.relhassubclass AND NOT c.relrowsecurity
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhrelid = c.oid)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid AND k.contype <> 'p')
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i
        WHERE i.indrelid = c.oid AND i.indisunique AND NOT i.indisprimary)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
        AND (a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '')) AS plain,
    EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> '') AS generated,
    EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
      AND a.attcollation NOT IN (SELECT 0 UNION ALL SELECT o.oid FROM pg_catalog.pg_collation o
        WHERE o.collname IN ('default', 'C'))
      AND a.atttypid <> 'pg_catalog.name'::pg_catalog.regtype) AS collated
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE pg_catalog.pg_table_is_visible(c.oid) AND c.relkind IN ('r', 'v', 'm', 'p')
    AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') ORDER BY 1) r
"""

# Those that a search path finds and that may be read.
SEQUENCES = """
SELECT c.relname FROM pg_catalog.pg_class c
WHERE CASE c.relkind WHEN 'S' THEN pg_catalog.has_sequence_privilege(c.oid, 'SELECT') END
  AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1
"""


class OutOfStep(Exception):
    """A table could not be brought to what PostgreSQL has."""


@dataclasses.dataclass(frozen=True)
class Relation:
    """A table or view of PostgreSQL's: `columns` are name, type, type with its modifier, and whether it is NOT NULL."""

    name: str
    kind: str
    columns: tuple[tuple[str, str, str, bool], ...]
    key: tuple[str, ...]
    is_plain: bool
    has_generated: bool
    # Does a column have an order of its own? Nobody but PostgreSQL knows another than `C`.
    is_collated: bool
    is_temporary: bool


@dataclasses.dataclass
class Placed:
    """What Tarn has of a relation."""

    relation: Relation
    kind: str
    is_stale: bool = False
    is_approximate: bool = False
    # What PostgreSQL had in it when it was last copied.
    mark: str = ""


class Tables:
    def __init__(self, postgres: Wire, tarn: Wire, script: Wire, folder: pathlib.Path):
        """`tarn` is a connection of its own, outside of the script's transactions; `script` is the script's; `folder` is
        for Parquet files."""
        self.postgres, self.tarn, self.script, self.folder = postgres, tarn, script, folder
        self.relations: dict[str, Relation] = {}
        self.placed: dict[str, Placed] = {}
        self.n_copies = 0
        # Loaded while PostgreSQL was in a transaction: whatever its end is, they are loaded again.
        self.loaded_in_transaction: set[str] = set()
        # How sequences were when they were last brought into step: last value, and whether it was given.
        self.sequences: dict[str, list[str | None]] = {}
        # The script's own tables that stand-ins replaced: what takes its transaction back brings them back, too.
        self.hidden: dict[str, Relation] = {}
        self.look()

    def look(self, both_made: bool = False) -> None:
        """What is there now on PostgreSQL's side. `both_made`: what is new was made by a statement that both took."""
        found = json.loads(self.postgres.must(CATALOG, PATIENCE_S).scalar() or "[]")
        now = {
            each["name"]: Relation(
                each["name"],
                each["kind"],
                tuple(map(tuple, each["columns"] or [])),
                tuple(each["key"] or []),
                each["plain"] and not each["collated"],
                each["generated"],
                each["collated"],
                each["temporary"],
            )
            for each in found
        }
        for name, placed in list(self.placed.items()):
            if name not in now:
                self.drop(name)
            elif now[name] != placed.relation:
                if placed.kind == OWN and both_made:
                    placed.relation = now[name]
                else:
                    self.drop(name)
        if both_made:
            for name in now.keys() - self.relations.keys():
                self.placed.setdefault(name, Placed(now[name], OWN))
        self.relations = now

    def named_in(self, names: set[str]) -> set[str]:
        return names & self.relations.keys()

    def is_read_only(self, name: str) -> bool:
        return name in self.relations and (name not in self.placed or self.placed[name].kind == FILES)

    def has_stand_ins(self) -> bool:
        return any(placed.kind != OWN for placed in self.placed.values())

    def is_approximate(self, names: set[str]) -> bool:
        """Has Tarn other values in one of them than PostgreSQL?"""
        placed = [self.placed[name] for name in names & self.placed.keys()]
        return any(each.is_approximate or self.is_rounded(each.relation) for each in placed)

    def is_rounded(self, relation: Relation) -> bool:
        """Has a column more digits in PostgreSQL than Tarn's of the same type, or fewer? docs/sql.md says of which types."""
        types = [(name, full) for name, _, full, _ in relation.columns]
        if any(SHORT_TIME.match(full) for _, full in types):
            return True
        scales = [f"scale({quoted(name)}) > {NUMERIC_DIGITS}" for name, full in types if full == "numeric"]
        if not scales:
            return False
        asked = f"SELECT bool_or({' OR '.join(scales)}) FROM {quoted(relation.name)}"
        return self.postgres.ask(asked).rows == [["t"]]

    def make_stale(self, names: set[str]) -> None:
        """They are brought again before a statement names them."""
        for name in names & self.placed.keys():
            self.placed[name].is_stale = True

    def make_copies_stale(self, but: frozenset[str] = frozenset()) -> None:
        """`but` those tables: both wrote them in a transaction that is open, and nobody else sees what is in them."""
        copies = {name for name, placed in self.placed.items() if placed.kind != OWN}
        self.make_stale(copies - {name for name in but if name in copies and self.placed[name].kind == TABLE})

    def transaction_ended(self) -> None:
        self.make_stale(self.loaded_in_transaction)
        self.loaded_in_transaction.clear()
        self.make_copies_stale()

    def bring(self, names: set[str], in_transaction: bool) -> None:
        """Whatever of `names` is a relation is in Tarn afterwards, as it is in PostgreSQL."""
        for name in sorted(self.named_in(names)):
            placed = self.placed.get(name)
            if placed is not None and not placed.is_stale:
                continue
            if in_transaction:
                # An error of what is asked here must not end the script's own transaction.
                self.postgres.must("SAVEPOINT bringing")
                self.loaded_in_transaction.add(name)
            try:
                if placed is None:
                    self.place(self.relations[name])
                else:
                    self.refresh(placed)
            except (ServerError, pyarrow.ArrowException, ValueError, OverflowError) as error:
                if in_transaction:
                    self.postgres.must("ROLLBACK TO bringing")
                raise OutOfStep(f"{name}: {error}") from error
            finally:
                if in_transaction:
                    self.postgres.must("RELEASE bringing")

    def place(self, relation: Relation) -> None:
        if relation.is_plain and self.make(relation):
            self.placed[relation.name] = Placed(relation, TABLE, is_stale=True)
        else:
            self.placed[relation.name] = Placed(relation, FILES, is_stale=True)
        self.refresh(self.placed[relation.name])

    def make(self, relation: Relation) -> bool:
        columns = [f"{quoted(name)} {full}{' NOT NULL' * needed}" for name, _, full, needed in relation.columns]
        if relation.key:
            columns.append(f"PRIMARY KEY ({', '.join(map(quoted, relation.key))})")
        self.remove(relation.name)
        return self.tarn.ask(f"CREATE TABLE {quoted(relation.name)} ({', '.join(columns)})").error is None

    def refresh(self, placed: Placed) -> None:
        relation = placed.relation
        if placed.kind == OWN and relation.is_temporary:
            self.remove_own(relation)
            self.place(relation)
            return
        mark = " ".join(map(str, self.postgres.must(mark_of(relation), PATIENCE_S).rows[0]))
        if int(mark.split()[0]) > MAX_ROWS:
            raise OutOfStep(f"{relation.name} has {mark.split()[0]} rows")
        if placed.kind == FILES:
            if mark != placed.mark:
                self.attach(placed)
        elif placed.kind == OWN or mark != placed.mark:
            try:
                self.load(relation)
            except ServerError:
                # Whatever its columns do not take, files may.
                placed.kind = FILES
                self.attach(placed)
        placed.mark, placed.is_stale = mark, False

    def load(self, relation: Relation) -> None:
        names = ", ".join(quoted(column[0]) for column in relation.columns)
        data = bytes(self.postgres.must(f"COPY (SELECT {names} FROM {quoted(relation.name)}) TO STDOUT").copied)
        self.tarn.must(f"DELETE FROM {quoted(relation.name)}", PATIENCE_S)
        copy = f"COPY {quoted(relation.name)} ({names}) FROM STDIN"
        answer = self.tarn.ask(copy, PATIENCE_S, data=lambda: data)
        if answer.error:
            raise answer.error

    def attach(self, placed: Placed) -> None:
        relation = placed.relation
        table, placed.is_approximate = self.arrow_table(relation)
        self.n_copies += 1
        folder = self.folder / f"{self.n_copies}"
        folder.mkdir(parents=True)
        parquet.write_table(table, folder / "rows.parquet")
        self.remove(relation.name)
        self.tarn.must(f"ATTACH 'file://{folder}' AS {quoted(relation.name)}", PATIENCE_S)

    def arrow_table(self, relation: Relation) -> tuple[pyarrow.Table, bool]:
        sources = [f"{quoted(name)}" for name, *_ in relation.columns]
        checks = [check_of(column) for column in relation.columns]
        checked = f"SELECT count(*), {', '.join(checks)} FROM {quoted(relation.name)}"
        found = self.postgres.must(checked, PATIENCE_S).rows[0]
        ways = [way_of(column, limits) for column, limits in zip(relation.columns, found[1:])]
        picked = [way.sql.format(source) for way, source in zip(ways, sources)]
        rows = self.postgres.must(f"SELECT 1, {', '.join(picked)} FROM {quoted(relation.name)}", PATIENCE_S).rows
        arrays = [
            pyarrow.array([None if row[idx + 1] is None else way.read(row[idx + 1]) for row in rows], way.first)
            for idx, way in enumerate(ways)
        ]
        arrays = [array.cast(way.type) for array, way in zip(arrays, ways)]
        names = [column[0] for column in relation.columns]
        exact = all(way.is_exact for way in ways) and not relation.has_generated and not relation.is_collated
        return pyarrow.Table.from_arrays(arrays, names=names), not exact

    def remove(self, name: str) -> None:
        for kind in ("TABLE", "VIEW"):
            if self.tarn.ask(f"DROP {kind} {quoted(name)}").error is None:
                return

    def remove_own(self, relation: Relation) -> None:
        """The script's session has it to itself, and it would hide a stand-in."""
        self.hidden[relation.name] = relation
        self.drop_own(relation)

    def drop_own(self, relation: Relation) -> None:
        """With views of it, which are stale as it is, and come as stand-ins of their own."""
        kind = "VIEW" if relation.kind == "v" else "TABLE"
        self.script.ask(f"DROP {kind} IF EXISTS pg_temp.{quoted(relation.name)} CASCADE")

    def transaction_undone(self) -> None:
        """What was dropped in it is there again, and hides stand-ins."""
        for name, relation in self.hidden.items():
            placed = self.placed.get(name)
            if placed is None or placed.kind != OWN:
                self.drop_own(relation)

    def written(self, names: set[str]) -> None:
        """Both wrote them, so that what was copied is there no more."""
        for name in names & self.placed.keys():
            self.placed[name].mark = ""

    def lacks(self, names: set[str]) -> bool:
        """Is one of them a relation that Tarn did not make itself?"""
        return any(name not in self.placed or self.placed[name].kind != OWN for name in self.named_in(names))

    def step_sequences(self) -> None:
        """Sequences that both have give the same number next."""
        for (name,) in self.postgres.must(SEQUENCES, PATIENCE_S).rows:
            state = self.postgres.must(f"SELECT last_value, is_called FROM {quoted(name)}").rows[0]
            if self.sequences.get(name) != state:
                last, is_called = self.sequences[name] = state
                self.tarn.ask(f"SELECT setval('{quoted(name)}', {last}, {'true' if is_called == 't' else 'false'})")

    def drop(self, name: str) -> None:
        placed = self.placed.pop(name)
        if placed.kind == OWN and placed.relation.is_temporary:
            self.remove_own(placed.relation)
        else:
            self.remove(name)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclasses.dataclass
class Way:
    """How a column comes into a Parquet file: PostgreSQL's expression, what reads its text, Arrow's type."""

    sql: str
    read: object
    type: pyarrow.DataType
    is_exact: bool = True
    # The type that values are read as, where it is not the column's.
    first: pyarrow.DataType | None = None

    def __post_init__(self):
        self.first = self.first or self.type


MICROSECONDS = "(extract(epoch FROM {}) * 1000000)::int8"
WAYS = {
    "boolean": Way("{}", lambda text: text == "t", pyarrow.bool_()),
    "smallint": Way("{}", int, pyarrow.int16()),
    "integer": Way("{}", int, pyarrow.int32()),
    "bigint": Way("{}", int, pyarrow.int64()),
    "real": Way("{}", float, pyarrow.float32()),
    "double precision": Way("{}", float, pyarrow.float64()),
    "text": Way("{}", str, pyarrow.string()),
    "character varying": Way("{}", str, pyarrow.string()),
    "name": Way("{}", str, pyarrow.string(), is_exact=False),
    "bytea": Way("encode({}, 'hex')", bytes.fromhex, pyarrow.binary()),
    "date": Way("{} - date '1970-01-01'", int, pyarrow.date32(), first=pyarrow.int32()),
    "time without time zone": Way(MICROSECONDS, int, pyarrow.time64("us"), first=pyarrow.int64()),
    "timestamp without time zone": Way(MICROSECONDS, int, pyarrow.timestamp("us"), first=pyarrow.int64()),
    "timestamp with time zone": Way(MICROSECONDS, int, pyarrow.timestamp("us", "UTC"), first=pyarrow.int64()),
}
AS_TEXT = Way("{}::text", str, pyarrow.string(), is_exact=False)
INSTANTS = ("date", "timestamp without time zone", "timestamp with time zone")
MAX_PRECISION = 38


def check_of(column: tuple[str, str, str, bool]) -> str:
    """What decides whether the values of a column can be in a file: for instants that they are finite, for numerics
    their scale and the places before the point."""
    name, type_ = quoted(column[0]), column[1]
    if type_ in INSTANTS:
        return f"CASE WHEN NOT bool_and(isfinite({name})) THEN 'f' ELSE 't' END"
    if type_ == "numeric":
        whole = f"length(trunc(abs({name}))::text)"
        odd = f"{name} IN ('NaN', 'Infinity', '-Infinity')"
        return f"CASE WHEN bool_or({odd}) THEN 'f' ELSE max(scale({name})) || ' ' || max({whole}) END"
    return "'t'"


def way_of(column: tuple[str, str, str, bool], limits: str | None) -> Way:
    type_ = column[1]
    if type_ == "numeric" and limits != "f":
        scale, whole = map(int, (limits or "0 1").split())
        if scale + whole <= MAX_PRECISION:
            return Way("{}", str, pyarrow.decimal128(MAX_PRECISION, scale), first=pyarrow.string())
        return AS_TEXT
    if type_ in INSTANTS and limits == "f":
        return AS_TEXT
    return WAYS.get(type_, AS_TEXT)


def mark_of(relation: Relation) -> str:
    """Rows and a sum over them: changes whenever the content does."""
    name = quoted(relation.name)
    return f"SELECT count(*), coalesce(sum(hashtextextended({name}::text, 0)::numeric), 0) FROM {name}"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
