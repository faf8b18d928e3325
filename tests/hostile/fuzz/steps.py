"""What a round does: a script of steps, made before the first one runs, so that it can be repeated and made shorter."""

import dataclasses
import random

from . import schema
from .queries import Field, Generator, Query
from .schema import Table
from .values import INT, TEXT, literal

N_STEPS = 140
PATHS = ("auto", "auto", "lake", "rows")


@dataclasses.dataclass(frozen=True)
class Step:
    """`kind`: create, query, write, copy, tarn (only there), kill, restart, tables."""

    kind: str
    sql: str = ""
    # PostgreSQL's text, where it is not the same.
    postgres: str = ""
    query: Query | None = None
    data: bytes = b""

    def text(self) -> str:
        match self.kind:
            case "kill" | "restart":
                return f"-- {self.kind} the server"
            case "tables":
                return "-- compare all rows of all tables, on each access path"
            case "copy":
                return f"{self.sql};\n" + self.data.decode(errors="replace") + "\\."
        return f"{self.sql};"


@dataclasses.dataclass
class Script:
    tables: list[Table]
    flags: tuple[str, ...]
    steps: list[Step]


def script(rng: random.Random, with_known: bool) -> Script:
    tables = schema.tables(rng)
    generator = Generator(rng, tables, with_known)
    flags = [
        "--lake-row-group-rows",
        rng.choice(["20", "100", "1000"]),
        "--copy-batch-rows",
        rng.choice(["7", "100", "32768"]),
    ]
    flags += ["--query-partitions", rng.choice(["1", "2", "3"]), "--versions-kept-ms", rng.choice(["0", "1s", "1h"])]
    flags += [
        "--cache-local",
        rng.choice(["true", "false"]),
        "--background",
        rng.choice(["true", "false", "false"]),
        "--background-interval-ms",
        "50ms",
    ]
    steps = [Step("create", table.ddl(True), table.ddl(False)) for table in tables]
    steps += [fill(rng, table, with_known, rng.choice([5, 40, 120])) for table in tables]
    while len(steps) < N_STEPS:
        steps += some(rng, len(steps), tables, generator, with_known)
    return Script(tables, tuple(flags), steps + [Step("restart"), Step("tables")])


def some(
    rng: random.Random, nth: int, tables: list[Table], generator: Generator, with_known: bool
) -> list[Step]:
    table, chance = rng.choice(tables), rng.random()
    if chance < 0.55:
        query = generator.query()
        return [Step("query", query.sql, query=query)]
    if chance < 0.78:
        writes = [write(rng, table, generator, with_known) for _ in range(rng.choice([1, 1, 3]))]
        return writes + ([Step("tables")] if rng.random() < 0.5 else [])
    if chance < 0.82 and any(column.kind in (INT, TEXT) for column in table.key):
        return [copy(rng, nth, table), Step("tables")]
    if chance < 0.93:
        call = rng.choice(["deliver", "deliver", "compact", "evict", "flush"])
        return [Step("tarn", f"CALL tarn.{call}('{table.name}')")]
    if chance < 0.965:
        choices = [f"SET tarn.access_path = '{rng.choice(PATHS)}'", f"SET tarn.pruning = '{rng.choice(['on', 'off'])}'"]
        choices += ["SYSTEM DROP CACHE", f"SET datafusion.execution.batch_size = {rng.choice([16, 100, 8192])}"]
        return [Step("tarn", rng.choice(choices))]
    return [Step(rng.choice(["kill", "kill", "restart"])), Step("tables")]


def rows_of(rng: random.Random, table: Table, with_known: bool, n_rows: int) -> list[list[str]]:
    """Rows whose keys differ."""
    key = [idx for idx, column in enumerate(table.columns) if column.is_key]
    rows = (table.row(rng, with_known) for _ in range(n_rows))
    return list({tuple(row[idx] for idx in key): row for row in rows}.values())


def values(rows: list[list[str]]) -> str:
    return ", ".join(f"({', '.join(row)})" for row in rows)


def put(rng: random.Random, table: Table, rows: list[list[str]]) -> Step:
    """An UPSERT, or the ON CONFLICT that says the same: PostgreSQL knows the second alone."""
    key = ", ".join(column.name for column in table.key)
    sets = ", ".join(f"{column.name} = excluded.{column.name}" for column in table.columns)
    rest = f"INTO {table.name} VALUES {values(rows)}"
    on_conflict = f"INSERT {rest} ON CONFLICT ({key}) DO UPDATE SET {sets}"
    return Step("write", f"UPSERT {rest}" if rng.random() < 0.5 else on_conflict, on_conflict)


def strict(rng: random.Random, table: Table, with_known: bool) -> Step:
    """A plain INSERT of a row whose key may be there, or one that changes what is."""
    sql = f"INSERT INTO {table.name} VALUES {values([table.row(rng, with_known)])}"
    if rng.random() < 0.5 and table.values:
        key = ", ".join(column.name for column in table.key)
        changed = rng.choice(table.values)
        sql += f" ON CONFLICT ({key}) DO UPDATE SET {changed.name} = excluded.{changed.name}"
    return Step("write", sql)


def fill(rng: random.Random, table: Table, with_known: bool, n_rows: int) -> Step:
    rows = [table.row(rng, with_known) for _ in range(n_rows)]
    return Step("write", f"INSERT INTO {table.name} VALUES {values(rows)} ON CONFLICT DO NOTHING")


def write(rng: random.Random, table: Table, generator: Generator, with_known: bool) -> Step:
    fields = [Field(f"{table.name}.{column.name}", column.kind) for column in table.columns]
    chance = rng.random()
    if chance < 0.3:
        n_rows = rng.choice([1, 1, 2, 20])
        if rng.random() < 0.3:
            return strict(rng, table, with_known)
        return (
            fill(rng, table, with_known, n_rows)
            if rng.random() < 0.5
            else put(rng, table, rows_of(rng, table, with_known, n_rows))
        )
    if chance < 0.4 and table.key[0].kind is INT:
        # The first column of the key moves all rows elsewhere, so that keys within the statement differ.
        moved = ", ".join(
            f"{c.name} + {rng.choice([1, 1000, 1000000])}" if c is table.key[0] else c.name for c in table.columns
        )
        return Step(
            "write",
            f"INSERT INTO {table.name} SELECT {moved} FROM {table.name} WHERE {table.key[0].name} < 1000000 AND {generator.predicate(fields)} ON CONFLICT DO NOTHING",
        )
    by_key = " AND ".join(f"{column.name} = {generator.literal(column.kind)}" for column in table.key)
    where = by_key if rng.random() < 0.35 else generator.predicate(fields)
    if chance < 0.75 and table.values:
        picked = rng.sample(table.values, rng.choice([1, 1, min(2, len(table.values))]))
        sets = ", ".join(
            f"{column.name} = {rng.choice([generator.literal(column.kind), generator.scalar(fields, column.kind), 'NULL'])}"
            for column in picked
        )
        return Step("write", f"UPDATE {table.name} SET {sets} WHERE {where}")
    return Step("write", f"DELETE FROM {table.name} WHERE {where}")


def copy(rng: random.Random, nth: int, table: Table) -> Step:
    """Text format, with new keys: of others the rest of the data decides which is named first."""
    lines = []
    for idx in range(rng.choice([1, 30, 300])):
        cells = []
        for column in table.columns:
            if column.is_key and column.kind is INT:
                cells.append(str(2_000_000 + nth * 1_000_000 + idx * 1_000 + rng.randrange(1_000)))
            elif column.is_key and column.kind is TEXT:
                cells.append(f"copied {idx} {rng.randrange(1 << 40)}")
            else:
                cells.append(copy_cell(rng, column))
        lines.append("\t".join(cells))
    return Step("copy", f"COPY {table.name} FROM STDIN", data=("\n".join(lines) + "\n").encode())


def copy_cell(rng: random.Random, column: schema.Column) -> str:
    if not column.is_key and rng.random() < 0.2:
        return "\\N"
    text = literal(rng, column.kind)
    # The literal's own text: between quotes, or a number in parentheses.
    value = (
        text[text.index("'") + 1 : text.rindex("'")].replace("''", "'")
        if "'" in text
        else text.split("::")[0].strip("()")
    )
    return value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
