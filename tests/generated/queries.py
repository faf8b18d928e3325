"""Random queries of tables, in the shapes that SQLite's sqllogictest has too: subqueries in select lists, correlated by
any operator, joins of many, columns of one name, aggregates, set operations, windows.

What a row computes does not overflow and divides by nothing: which rows are computed is left to the planner.
"""

import dataclasses
import random

from expressions import Column, Expressions
from sides import Sides
from signatures import Signatures
from values import POOLS, quoted

COMPARED_BY = ("=", "=", "<>", "<", "<=", ">", ">=")
NAMES = ("a", "b", "c", "d", "e")
N_TABLES = 5
MAX_DEPTH = 2
# One column of each type that tables have and that has an order.
WIDE = tuple(
    Column(f"w_{type_.split(' ')[0].replace('[]', 's')}{'_tz' if 'with time zone' in type_ else ''}", type_)
    for type_ in POOLS
    if type_ not in ("json", "interval", "integer[]", "text[]")
)


def make_tables(rng: random.Random, sides: Sides) -> None:
    """Tables of the same columns and other rows, some with a key, some of them in the lake; and a wide one of all types."""
    columns = ", ".join(f"{name} integer" for name in NAMES)
    for idx in range(1, N_TABLES + 1):
        key = ", PRIMARY KEY (id)" if rng.random() < 0.5 else ""
        rows = [[str(nth), *(maybe(rng, str(rng.randint(-3, 12))) for _ in NAMES), word(rng)] for nth in range(rng.randint(0, 25))]
        table(sides, f"t{idx}", f"id integer, {columns}, x text{key}", rows, rng.random() < 0.5)
    rows = []
    for nth in range(40):
        values = [maybe(rng, quoted(rng.choice(POOLS[column.type_]))) for column in WIDE]
        rows.append([str(nth), *values])
    wide = ", ".join(f"{column.text} {stored(column.type_)}" for column in WIDE)
    table(sides, "w", f"id integer PRIMARY KEY, {wide}", rows, rng.random() < 0.5)


def table(sides: Sides, name: str, columns: str, rows: list[list[str]], is_delivered: bool) -> None:
    sides.both(f"DROP TABLE IF EXISTS {name}")
    sides.both(f"CREATE TABLE {name} ({columns})")
    if rows:
        values = ", ".join("(" + ", ".join(row) + ")" for row in rows)
        sides.both(f"INSERT INTO {name} VALUES {values}")
    if is_delivered:
        sides.tarn.must(f"CALL tarn.deliver('{name}')")


def stored(type_: str) -> str:
    """A column of numeric has the digits that it is declared with; without any Tarn keeps twelve."""
    return "numeric(20, 6)" if type_ == "numeric" else type_


def maybe(rng: random.Random, text: str) -> str:
    return "NULL" if rng.random() < 0.12 else text


def word(rng: random.Random) -> str:
    return maybe(rng, quoted(rng.choice(["", "a", "b", "ab", "table tn3 row 12", "%", "B"])))


@dataclasses.dataclass(frozen=True)
class Query:
    """The parts of a SELECT; an empty one is left out."""

    items: tuple[str, ...]
    sources: tuple[str, ...]
    where: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    having: str = ""
    is_distinct: bool = False
    limit: str = ""
    is_ordered: bool = False
    # `UNION ALL` and such, and what stands behind it.
    operation: str = ""
    other: "Query | None" = None

    def sql(self) -> str:
        text = f"{self.bare()} {self.operation} {self.other.bare()}" if self.other else self.bare()
        order = f" ORDER BY {', '.join(str(idx + 1) for idx in range(len(self.items)))}" if self.is_ordered else ""
        return f"{text}{order}{self.limit if self.is_ordered else ''}"

    def bare(self) -> str:
        text = f"SELECT {'DISTINCT ' if self.is_distinct else ''}{', '.join(self.items)} FROM {self.sources[0]}"
        for source in self.sources[1:]:
            text += source if source.startswith(" ") else f", {source}"
        text += f" WHERE {' AND '.join(self.where)}" if self.where else ""
        text += f" GROUP BY {', '.join(self.group)}" if self.group else ""
        return text + (f" HAVING {self.having}" if self.having else "")

    def simpler(self):
        """The same query without one of its parts; also such that no server takes."""
        change = dataclasses.replace
        if self.other:
            yield change(self, other=None, operation="")
            yield change(self.other, is_ordered=self.is_ordered)
        for part in ("having", "limit"):
            if getattr(self, part):
                yield change(self, **{part: ""})
        for part in ("is_distinct", "is_ordered"):
            if getattr(self, part):
                yield change(self, **{part: False})
        for part in ("items", "sources", "where", "group"):
            own = getattr(self, part)
            for idx in range(len(own)):
                if len(own) > 1 or part in ("where", "group"):
                    yield change(self, **{part: own[:idx] + own[idx + 1 :]})


class Queries:
    def __init__(self, rng: random.Random, signatures: Signatures):
        self.rng, self.signatures = rng, signatures
        self._n_aliases = 0

    def query(self) -> Query:
        chance = self.rng.random()
        if chance < 0.25:
            return self.of_the_wide()
        if chance < 0.45:
            return self.grouped()
        if chance < 0.6:
            return self.many()
        if chance < 0.7:
            return self.combined()
        if chance < 0.8:
            return self.windowed()
        return self.plain()

    # Sources, and what can be named of them

    def source(self, depth: int = 0) -> tuple[str, list[Column]]:
        self._n_aliases += 1
        name, alias = f"t{self.rng.randint(1, N_TABLES)}", f"x{self._n_aliases}"
        if depth < 1 and self.rng.random() < 0.2:
            # Columns under the names of others.
            shuffled = self.rng.sample(NAMES, len(NAMES))
            columns = ", ".join(f"{one} AS {other}" for one, other in zip(NAMES, shuffled))
            where = f" WHERE {self.rng.choice(NAMES)} {self.rng.choice(COMPARED_BY)} {self.number()}" if self.rng.random() < 0.5 else ""
            text = f"(SELECT {'DISTINCT ' if self.rng.random() < 0.2 else ''}{columns}, x FROM {name}{where}) AS {alias}"
        else:
            text = f"{name} AS {alias}"
        return text, [Column(f"{alias}.{column}", "integer") for column in NAMES] + [Column(f"{alias}.x", "text")]

    def number(self) -> str:
        return str(self.rng.randint(-3, 12)).replace("-3", "(-3)")

    # Expressions

    def integer(self, columns: list[Column], depth: int = 0) -> str:
        """Small, and never an error."""
        own = [column.text for column in columns if column.type_ == "integer"]
        chance = self.rng.random()
        if chance < 0.5 or depth >= MAX_DEPTH:
            return self.rng.choice(own) if self.rng.random() < 0.85 else self.number()
        one, other = self.integer(columns, depth + 1), self.integer(columns, depth + 1)
        forms = [
            f"{one} + {other}",
            f"{one} - {other} * 2",
            f"abs({one} - {other})",
            f"coalesce({one}, {other}, 7)",
            f"nullif({one}, {other})",
            f"CASE {one} WHEN {other} THEN {self.number()} WHEN {self.number()} THEN 9 ELSE {other} END",
            f"CASE WHEN {self.predicate(columns, depth + 1)} THEN {one} ELSE {other} END",
            f"greatest({one}, {other})",
            f"({one} % 3)",
            f"length({self.text(columns)})",
            f"({self.scalar(columns, depth)})",
            f"({self.scalar(columns, depth)})",
        ]
        return self.rng.choice(forms)

    def text(self, columns: list[Column]) -> str:
        own = [column.text for column in columns if column.type_ == "text"]
        return self.rng.choice(own) if own and self.rng.random() < 0.8 else "'ab'"

    def scalar(self, outer: list[Column], depth: int) -> str:
        """A subquery of one row and one integer, often of what is around it."""
        source, inner = self.source(depth + 1)
        where = f" WHERE {self.correlated(inner, outer, depth)}" if self.rng.random() < 0.8 else ""
        column = self.rng.choice([column.text for column in inner if column.type_ == "integer"])
        aggregate = self.rng.choice(
            ["count(*)", f"count({column})", f"count(DISTINCT {column})", f"max({column})", f"min({column})", f"sum({column})::integer"]
        )
        return f"SELECT {aggregate} FROM {source}{where}"

    def correlated(self, inner: list[Column], outer: list[Column], depth: int) -> str:
        one = self.rng.choice([column.text for column in inner if column.type_ == "integer"])
        other = self.rng.choice([column.text for column in outer if column.type_ == "integer"])
        text = f"{one} {self.rng.choice(COMPARED_BY)} {other}"
        if self.rng.random() < 0.3:
            text += f" AND {self.predicate(inner, depth + 2)}"
        return f"{text} OR {self.predicate(inner, MAX_DEPTH)}" if self.rng.random() < 0.1 else text

    def predicate(self, columns: list[Column], depth: int = 0) -> str:
        chance = self.rng.random()
        if chance < 0.25 and depth < MAX_DEPTH:
            one, other = self.predicate(columns, depth + 1), self.predicate(columns, depth + 1)
            return self.rng.choice([f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})"])
        one = self.integer(columns, depth + 1)
        forms = [
            f"{one} {self.rng.choice(COMPARED_BY)} {self.integer(columns, depth + 1)}",
            f"{one} {self.rng.choice(COMPARED_BY)} {self.number()}",
            f"{one} BETWEEN {self.number()} AND {self.integer(columns, MAX_DEPTH)}",
            f"{one} NOT BETWEEN {self.number()} AND {self.number()}",
            f"{one} IS {self.rng.choice(['', 'NOT '])}NULL",
            f"{one} IS DISTINCT FROM {self.integer(columns, MAX_DEPTH)}",
            f"{one} {self.rng.choice(['', 'NOT '])}IN ({self.number()}, {self.number()}, {maybe(self.rng, self.number())})",
            f"{self.text(columns)} {self.rng.choice(['', 'NOT '])}LIKE {quoted(self.rng.choice(['a%', '%b', '_', '%row%', 'A']))}",
            f"{self.text(columns)} {self.rng.choice(COMPARED_BY)} {self.text(columns)}",
        ]
        if depth < MAX_DEPTH:
            source, inner = self.source(depth + 1)
            own = self.rng.choice([column.text for column in inner if column.type_ == "integer"])
            where = f" WHERE {self.correlated(inner, columns, depth)}" if self.rng.random() < 0.6 else ""
            forms += [
                f"{self.rng.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {source}{where})",
                f"{one} {self.rng.choice(['', 'NOT '])}IN (SELECT {own} FROM {source}{where})",
                f"{one} {self.rng.choice(COMPARED_BY)} {self.rng.choice(['ANY', 'ALL'])} (SELECT {own} FROM {source}{where})",
                f"{one} {self.rng.choice(COMPARED_BY)} ({self.scalar(columns, depth)})",
                f"{one} > (SELECT avg({own}) FROM {source})",
            ]
        return self.rng.choice(forms)

    # Shapes

    def ended(self, query: Query) -> Query:
        """In an order of all columns, and then perhaps cut."""
        if self.rng.random() < 0.5:
            return query
        limit = f" LIMIT {self.rng.randint(0, 12)}" if self.rng.random() < 0.5 else ""
        limit += f" OFFSET {self.rng.randint(0, 4)}" if limit and self.rng.random() < 0.4 else ""
        return dataclasses.replace(query, is_ordered=True, limit=limit)

    def plain(self) -> Query:
        source, columns = self.source()
        sources = [source]
        if self.rng.random() < 0.5:
            more, theirs = self.source()
            kind = self.rng.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
            on = f"{self.rng.choice(columns[:5]).text} = {self.rng.choice(theirs[:5]).text}"
            if kind != "FULL JOIN" and self.rng.random() < 0.4:
                on += f" AND {self.predicate(columns + theirs, MAX_DEPTH)}"
            sources.append(f" {kind} {more} ON {on}")
            columns = columns + theirs
        items = tuple(self.integer(columns) for _ in range(self.rng.randint(1, 4)))
        if self.rng.random() < 0.3:
            items += (f"{self.predicate(columns)} AS p",)
        if self.rng.random() < 0.3:
            items += (f"({self.scalar(columns, 0)})",)
        where = tuple(self.predicate(columns) for _ in range(self.rng.choice([0, 1, 1, 2])))
        return self.ended(Query(items, tuple(sources), where, is_distinct=self.rng.random() < 0.2))

    def many(self) -> Query:
        """Joins of three to six, by commas, words, and USING."""
        n_sources = self.rng.randint(3, 6)
        all_ = [self.source() for _ in range(n_sources)]
        where = []
        for nth in range(1, n_sources):
            before = self.rng.choice(all_[:nth])[1]
            where.append(f"{self.rng.choice(all_[nth][1][:5]).text} = {self.rng.choice(before[:5]).text}")
        columns = [column for _, own in all_ for column in own]
        where.append(self.predicate(columns, MAX_DEPTH - 1))
        self.rng.shuffle(where)
        items = (*(self.rng.choice(columns).text for _ in range(self.rng.randint(1, 4))), "count(*)")
        query = Query(items, tuple(text for text, _ in all_), tuple(where), group=items[:-1])
        return self.ended(query)

    def grouped(self) -> Query:
        source, columns = self.source()
        sources = [source]
        if self.rng.random() < 0.3:
            more, theirs = self.source()
            sources.append(f" LEFT JOIN {more} ON {columns[0].text} = {theirs[1].text}")
            columns = columns + theirs
        group = tuple(dict.fromkeys(self.integer(columns, MAX_DEPTH - 1) for _ in range(self.rng.randint(0, 2))))
        # A number alone would be a column's place; of what is constant PostgreSQL 15 forgets that grouping sets make it NULL.
        group = tuple(text for text in group if "." in text and "SELECT" not in text)
        own = self.integer(columns, MAX_DEPTH - 1)
        aggregates = [
            "count(*)",
            f"count({own})",
            f"sum({own})",
            f"min({own})",
            f"max({self.text(columns)})",
            f"avg({own})",
            f"count(DISTINCT {own})",
            f"sum({own}) FILTER (WHERE {self.predicate(columns, MAX_DEPTH)})",
            f"bool_or({self.predicate(columns, MAX_DEPTH)})",
            f"string_agg({columns[5].text}, ',' ORDER BY {columns[5].text})",
            f"array_agg({own} ORDER BY ({own}) + 0 DESC)",
            f"sum(DISTINCT {own}) * 2 - min({own})",
            f"stddev_samp({own})",
        ]
        items = (*group, *self.rng.sample(aggregates, self.rng.randint(1, 3)))
        having = f"count(*) {self.rng.choice(COMPARED_BY)} {self.rng.randint(0, 4)}" if self.rng.random() < 0.3 else ""
        where = (self.predicate(columns),) if self.rng.random() < 0.5 else ()
        sets = f"{self.rng.choice(['ROLLUP', 'CUBE'])} ({', '.join(group)})" if len(group) == 2 and self.rng.random() < 0.3 else ""
        return self.ended(Query(items, tuple(sources), where, (sets,) if sets else group, having))

    def combined(self) -> Query:
        def side() -> Query:
            source, columns = self.source()
            where = (self.predicate(columns, 1),) if self.rng.random() < 0.7 else ()
            # Tarn's EXCEPT and INTERSECT have the types of their left side.
            return Query((f"({self.integer(columns, 1)})::integer", self.text(columns)), (source,), where)

        operation = self.rng.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"])
        return self.ended(dataclasses.replace(side(), operation=operation, other=side()))

    def windowed(self) -> Query:
        name = f"t{self.rng.randint(1, N_TABLES)}"
        columns = [Column(f"{name}.{column}", "integer") for column in NAMES] + [Column(f"{name}.x", "text")]
        own, by = self.integer(columns, MAX_DEPTH), self.rng.choice(NAMES)
        frame = self.rng.choice(["", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING"])
        over = f"(PARTITION BY {name}.{by} ORDER BY {name}.id{self.rng.choice(['', ' DESC'])}{frame})"
        function = self.rng.choice(
            [f"sum({own})", "row_number()", "rank()", f"lag({own}) ", f"lead({own}, 2, 0)", f"first_value({own})", f"count({own})", f"max({own})"]
        )
        if function.startswith(("row_number", "rank", "lag", "lead")):
            over = over.replace(frame, "") if frame else over
        return self.ended(Query((f"{name}.id", f"{name}.{by}", f"{function} OVER {over}"), (name,)))

    def of_the_wide(self) -> Query:
        expressions = Expressions(self.rng, self.signatures, WIDE)
        items = ["id"]
        items += [expressions.any(self.rng.randint(1, 2)).sql() for _ in range(self.rng.randint(1, 2))]
        where = (expressions.of("boolean", 2).sql(),) if self.rng.random() < 0.6 else ()
        return Query(tuple(items), ("w",), tuple(f"({text})" for text in where))
