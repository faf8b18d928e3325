"""Random queries whose answer the standard fixes: no order that is not total, no division, no arithmetic that could
overflow.

`Query.ordered`: the rows' order is part of the answer. `Query.approximate`: columns (from 0) whose last digits may
differ, as sums of floats do.
"""

import dataclasses
import random

from .schema import Table
from .values import BIGINT, BOOLEAN, BYTEA, DATE, DOUBLE, INT, NUMBERS, NUMERIC, REAL, SMALLINT, TEXT, Kind, literal

MAX_DEPTH = 3


@dataclasses.dataclass(frozen=True)
class Query:
    sql: str
    ordered: bool = False
    approximate: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True)
class Field:
    """A column that can be named here."""

    text: str
    kind: Kind


@dataclasses.dataclass
class Source:
    """What stands behind FROM, what it has, and which of its columns tell rows apart (none: nothing does)."""

    sql: str
    fields: list[Field]
    key: list[Field]


class Generator:
    def __init__(self, rng: random.Random, tables: list[Table], with_known: bool = False):
        self.rng, self.tables, self.with_known = rng, tables, with_known
        self._n_aliases = 0

    def _alias(self) -> str:
        self._n_aliases += 1
        return f"a{self._n_aliases}"

    def literal(self, kind: Kind) -> str:
        return literal(self.rng, kind, self.with_known)

    # Sources

    def base(self) -> Source:
        table, alias = self.rng.choice(self.tables), self._alias()
        fields = [Field(f"{alias}.{column.name}", column.kind) for column in table.columns]
        key = [Field(f"{alias}.{column.name}", column.kind) for column in table.key]
        return Source(f"{table.name} AS {alias}", fields, key)

    def derived(self, depth: int) -> Source:
        inner, alias = self.source(depth + 1), self._alias()
        picked = self.rng.sample(inner.fields, min(len(inner.fields), self.rng.randint(1, 4)))
        picked += [field for field in inner.key if field not in picked]
        names = {field.text: f"{alias}c{idx}" for idx, field in enumerate(picked)}
        own = [field.text.split(".")[1] for field in picked]
        if len(set(own)) == len(own) and self.rng.random() < 0.5:
            # By their own names, as other sources have them: columns are not found by what they are called.
            names = dict(zip(names, own))
        columns = ", ".join(f"{text} AS {name}" for text, name in names.items())
        where = f" WHERE {self.predicate(inner.fields, depth + 1)}" if self.rng.random() < 0.6 else ""
        if self.rng.random() < 0.2:
            # Constant here, and no longer where an outer join fills it up.
            field = self.rng.choice(inner.fields)
            where += f"{' AND' if where else ' WHERE'} {field.text} = {self.literal(field.kind)}"
        fields = [Field(f"{alias}.{names[field.text]}", field.kind) for field in picked]
        if self.rng.random() < 0.2:
            columns += f", {self.rng.choice(['true', 'false'])} AS {alias}b"
            fields.append(Field(f"{alias}.{alias}b", BOOLEAN))
        key = [Field(f"{alias}.{names[field.text]}", field.kind) for field in inner.key]
        limit = ""
        if key and self.rng.random() < 0.2:
            limit = f" ORDER BY {', '.join(field.text for field in inner.key)} LIMIT {self.rng.randint(0, 40)}"
            limit += f" OFFSET {self.rng.randint(0, 5)}" if self.rng.random() < 0.4 else ""
        return Source(f"(SELECT {columns} FROM {inner.sql}{where}{limit}) AS {alias}", fields, key)

    def joined(self, depth: int) -> Source:
        left, right = self.source(depth + 1), self.source(depth + 1)
        pairs = [
            (one, other)
            for one in left.fields
            for other in right.fields
            if one.kind is other.kind and one.kind not in (DOUBLE, REAL)
        ]
        kind = self.rng.choice(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        if not pairs:
            return left
        # PostgreSQL has no full join by anything else.
        equals = ["="] if kind == "FULL JOIN" else ["=", "=", "=", "=", "IS NOT DISTINCT FROM"]
        conditions = [
            f"{one.text} {self.rng.choice(equals)} {other.text}"
            for one, other in self.rng.sample(pairs, min(len(pairs), self.rng.choice([1, 1, 2])))
        ]
        if kind != "FULL JOIN" and self.rng.random() < 0.3:
            conditions.append(self.predicate(left.fields + right.fields, depth + 2))
        # Keys of an outer side can be NULL, but are NULL together: they still tell rows apart.
        key = left.key + right.key if left.key and right.key else []
        # PostgreSQL takes a join to the right of a join without parentheses, too.
        behind = f"({right.sql})" if " JOIN " in right.sql and not self.with_known else right.sql
        return Source(f"{left.sql} {kind} {behind} ON {' AND '.join(conditions)}", left.fields + right.fields, key)

    def source(self, depth: int = 0) -> Source:
        chance = self.rng.random()
        if depth >= MAX_DEPTH or chance < 0.55:
            return self.base()
        return self.derived(depth) if chance < 0.75 else self.joined(depth)

    # Expressions

    def fields_of(self, fields: list[Field], *kinds: Kind) -> list[Field]:
        return [field for field in fields if field.kind in kinds]

    def scalar(self, fields: list[Field], kind: Kind, depth: int = 0) -> str:
        """An expression of a type; never an error."""
        own = self.fields_of(fields, kind)
        chance = self.rng.random()
        if own and (chance < 0.5 or depth >= MAX_DEPTH):
            return self.rng.choice(own).text
        if depth >= MAX_DEPTH or chance < 0.65:
            return self.literal(kind)
        one = self.scalar(fields, kind, depth + 1)
        other = self.scalar(fields, kind, depth + 1)
        # A decimal literal beside a float, and NULLs without a type, mean something else in DataFusion: casts keep both
        # plain.
        forms = [
            f"CASE WHEN {self.predicate(fields, depth + 1)} THEN {one} ELSE {other} END",
            f"CASE WHEN {self.predicate(fields, depth + 1)} THEN {one} END",
            f"coalesce({one}, {other})",
            f"nullif({one}, {other})",
        ]
        if kind is INT:
            narrow = self.scalar(self.fields_of(fields, SMALLINT), SMALLINT, MAX_DEPTH)
            forms += [
                f"({narrow})::int + {self.rng.randint(1, 9)}",
                f"({narrow})::int * {self.rng.randint(2, 9)}",
                f"abs(({narrow})::int)",
            ]
            forms += [
                f"length({self.scalar(fields, TEXT, depth + 1)})",
                f"- (({narrow})::int)",
                f"(({narrow})::int % 7)",
            ]
            forms += [f"greatest({one}, {other})", f"least({one}, {other})"]
        elif kind is BIGINT:
            forms += [
                f"({self.scalar(fields, INT, depth + 1)})::bigint + {self.rng.randint(1, 9)}",
                f"({self.scalar(fields, INT, depth + 1)})::bigint * 3",
            ]
        elif kind is TEXT:
            text = self.scalar(fields, TEXT, depth + 1)
            forms += [
                f"({text} || {other})",
                f"upper({text})",
                f"lower({text})",
                f"replace({text}, 'a', 'x''y')",
                f"left({text}, 2)",
            ]
            forms += [f"substr({text}, 2, 3)", f"trim({text})", f"(({self.scalar(fields, INT, depth + 1)})::text)"]
        elif kind is DATE:
            forms += [f"(({self.scalar(fields, DATE, depth + 1)}))"]
        return self.rng.choice(forms)

    def comparable(self, fields: list[Field]) -> Kind:
        return self.rng.choice(fields).kind

    def predicate(self, fields: list[Field], depth: int = 0) -> str:
        chance = self.rng.random()
        if depth < MAX_DEPTH and chance < 0.35:
            one, other = self.predicate(fields, depth + 1), self.predicate(fields, depth + 1)
            return self.rng.choice(
                [
                    f"({one} AND {other})",
                    f"({one} OR {other})",
                    f"NOT ({one})",
                    f"({one} OR {other})",
                    f"{one} AND {other}",
                ]
            )
        field = self.rng.choice(fields)
        kind, text = field.kind, field.text
        forms = ["compare"] * 5 + ["null", "between", "in", "in", "not in", "distinct", "same kind", "case"]
        forms += ["like"] * 2 if kind is TEXT else []
        forms += ["boolean"] * 3 if kind is BOOLEAN else []
        forms += ["subquery", "in subquery", "not in subquery", "exists", "all"] if depth < MAX_DEPTH else []
        form = self.rng.choice(forms)
        by = self.rng.choice(["=", "=", "<>", "<", "<=", ">", ">="])
        match form:
            case "null":
                return f"{text} IS {self.rng.choice(['', 'NOT '])}NULL"
            case "between":
                return f"{text} {self.rng.choice(['', 'NOT '])}BETWEEN {self.literal(kind)} AND {self.literal(kind)}"
            case "in" | "not in":
                values = [self.literal(kind) for _ in range(self.rng.randint(1, 5))]
                if self.rng.random() < 0.25:
                    values.insert(self.rng.randint(0, len(values)), "NULL")
                return f"{text} {form.upper()} ({', '.join(values)})"
            case "distinct":
                other = (
                    self.rng.choice(self.fields_of(fields, kind)).text
                    if self.rng.random() < 0.4
                    else self.rng.choice([self.literal(kind), "NULL"])
                )
                return f"{text} IS {self.rng.choice(['', 'NOT '])}DISTINCT FROM {other}"
            case "same kind":
                return f"{text} {by} {self.rng.choice(self.fields_of(fields, kind)).text}"
            case "case":
                return f"{self.scalar(fields, kind, depth + 1)} {by} {self.scalar(fields, kind, depth + 1)}"
            case "like":
                pattern = self.rng.choice(["a%", "%b", "%''%", "_", "%", "a_b", "", "%\\%%", "\\_", "A%"])
                return f"{text} {self.rng.choice(['', 'NOT '])}{self.rng.choice(['LIKE', 'ILIKE'])} '{pattern}'"
            case "boolean":
                return self.rng.choice(
                    [
                        text,
                        f"NOT {text}",
                        f"{text} IS TRUE",
                        f"{text} IS NOT FALSE",
                        f"{text} IS UNKNOWN",
                        f"{text} IS NOT UNKNOWN",
                        f"{text} = true",
                    ]
                )
            case "subquery":
                inner = self.base()
                own = self.fields_of(inner.fields, kind)
                if own and kind.has_min:
                    where = (
                        f" WHERE {self.predicate(inner.fields + fields, depth + 2)}" if self.rng.random() < 0.7 else ""
                    )
                    return f"{text} {by} (SELECT {self.rng.choice(['min', 'max'])}({self.rng.choice(own).text}) FROM {inner.sql}{where})"
                return f"(SELECT count(*) FROM {inner.sql} WHERE {self.predicate(inner.fields + fields, depth + 2)}) {by} {self.rng.randint(0, 5)}"
            case "in subquery" | "not in subquery" | "all":
                inner = self.base()
                own = self.fields_of(inner.fields, kind)
                if own:
                    where = f" WHERE {self.predicate(inner.fields, depth + 2)}" if self.rng.random() < 0.7 else ""
                    sub = f"(SELECT {self.rng.choice(own).text} FROM {inner.sql}{where})"
                    if form == "all":
                        return f"{text} {by} {self.rng.choice(['ALL', 'ANY'])} {sub}"
                    return f"{text} {form.removesuffix(' subquery').upper()} {sub}"
            case "exists":
                inner = self.base() if self.rng.random() < 0.6 else self.joined(MAX_DEPTH - 1)
                return f"{self.rng.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {inner.sql} WHERE {self.predicate(inner.fields + fields, depth + 2)})"
        return f"{text} {by} {self.literal(kind)}"

    # Queries

    def query(self) -> Query:
        chance = self.rng.random()
        if chance < 0.40:
            return self.plain()
        if chance < 0.72:
            return self.grouped()
        if chance < 0.84:
            return self.set_operation()
        if chance < 0.92:
            return self.windowed()
        return self.with_cte()

    def where(self, fields: list[Field]) -> str:
        return f" WHERE {self.predicate(fields)}" if self.rng.random() < 0.8 else ""

    def order(self, terms: list[str]) -> str:
        """Every term, in some direction each."""
        self.rng.shuffle(terms)
        return ", ".join(
            term + self.rng.choice(["", "", " ASC", " DESC", " DESC NULLS LAST", " NULLS FIRST"]) for term in terms
        )

    def limit(self) -> str:
        return f" LIMIT {self.rng.choice([0, 1, 3, 10, 1000])}" + (
            f" OFFSET {self.rng.randint(0, 12)}" if self.rng.random() < 0.4 else ""
        )

    def plain(self) -> Query:
        source = self.source()
        n_items = self.rng.randint(1, 4)
        items = []
        for _ in range(n_items):
            field = self.rng.choice(source.fields)
            items.append(field.text if self.rng.random() < 0.6 else self.scalar(source.fields, field.kind))
        sql = f"FROM {source.sql}{self.where(source.fields)}"
        listed = ", ".join(f"{item} AS c{idx}" for idx, item in enumerate(items))
        if self.rng.random() < 0.2:
            distinct = f"SELECT DISTINCT {listed} {sql}"
            if self.rng.random() < 0.5:
                return Query(
                    f"{distinct} ORDER BY {self.order([f'c{idx}' for idx in range(n_items)])}{self.limit() if self.rng.random() < 0.6 else ''}",
                    True,
                )
            return Query(distinct)
        if source.key and self.rng.random() < 0.5:
            terms = [field.text for field in source.key]
            # Others in front of the key leave the order total.
            others = [field.text for field in source.fields if field not in source.key]
            front = self.order(self.rng.sample(others, min(len(others), self.rng.choice([0, 0, 1, 2]))))
            order = ", ".join(part for part in (front, self.order(terms)) if part)
            return Query(
                f"SELECT {listed} {sql} ORDER BY {order}{self.limit() if self.rng.random() < 0.7 else ''}", True
            )
        return Query(f"SELECT {listed} {sql}")

    def aggregate(self, fields: list[Field]) -> tuple[str, bool]:
        """An aggregate, and whether its last digits may differ."""
        field = self.rng.choice(fields)
        distinct = self.rng.choice(["", "", "DISTINCT "])
        forms: list[tuple[str, bool]] = [("count(*)", False), (f"count({distinct}{field.text})", False)]
        if field.kind.has_min:
            forms += [(f"min({field.text})", False), (f"max({field.text})", False)] * 2
        if field.kind in (INT, SMALLINT, BIGINT, NUMERIC):
            forms += [(f"sum({distinct}{field.text})", False)] * 2 + [(f"avg({field.text})", True)]
        if field.kind in (DOUBLE, REAL):
            forms += [(f"count({distinct}{field.text})", False)]
        if field.kind is BOOLEAN:
            forms += [(f"bool_and({field.text})", False), (f"bool_or({field.text})", False)]
        text, is_approximate = self.rng.choice(forms)
        if self.rng.random() < 0.2:
            # Without subqueries: DataFusion knows none in there.
            text += f" FILTER (WHERE {self.predicate(fields, MAX_DEPTH)})"
        return text, is_approximate

    def grouped(self) -> Query:
        source = self.source()
        groups = []
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            field = self.rng.choice(source.fields)
            groups.append(field.text if self.rng.random() < 0.7 else self.scalar(source.fields, field.kind, 1))
        groups = list(dict.fromkeys(groups))
        aggregates = [self.aggregate(source.fields) for _ in range(self.rng.randint(1, 3))]
        items = groups + [text for text, _ in aggregates]
        approximate = frozenset(
            len(groups) + idx for idx, (_, is_approximate) in enumerate(aggregates) if is_approximate
        )
        sql = f"SELECT {', '.join(f'{item} AS c{idx}' for idx, item in enumerate(items))} FROM {source.sql}{self.where(source.fields)}"
        if groups:
            sql += f" GROUP BY {', '.join(str(idx + 1) for idx in range(len(groups)))}"
            # To PostgreSQL a number among them is a column's place.
            if all("." in group for group in groups) and self.rng.random() < 0.2:
                # Rows of several sets may be called the same: they have no order.
                listed = ", ".join(groups)
                sets = [f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS (({listed}), ({groups[0]}), ())"]
                sql = f"{sql.rsplit(' GROUP BY ', 1)[0]} GROUP BY {self.rng.choice(sets)}"
                return Query(sql, False, approximate)
            if self.rng.random() < 0.25:
                sql += f" HAVING {self.rng.choice(['count(*) > 1', 'count(*) < 3', 'min(1) = 1', self.of_nothing()])}"
            if self.rng.random() < 0.4:
                return Query(
                    f"{sql} ORDER BY {self.order([f'c{idx}' for idx in range(len(groups))])}{self.limit()}",
                    True,
                    approximate,
                )
        elif self.rng.random() < 0.2:
            sql += f" HAVING {self.of_nothing()}"
        return Query(sql, False, approximate)

    def of_nothing(self) -> str:
        """A condition that names no column of the query around."""
        return f"(SELECT count(*) FROM {self.base().sql}) {self.rng.choice(['<', '>', '='])} {self.rng.randint(0, 9)}"

    def set_operation(self) -> Query:
        left = self.source(2)
        kinds = [self.rng.choice(left.fields) for _ in range(self.rng.randint(1, 2))]
        arms = [f"SELECT {', '.join(field.text for field in kinds)} FROM {left.sql}{self.where(left.fields)}"]
        for _ in range(self.rng.randint(1, 2)):
            right = self.source(2)
            items = [self.scalar(right.fields, field.kind) for field in kinds]
            arms.append(f"SELECT {', '.join(items)} FROM {right.sql}{self.where(right.fields)}")
        sql = arms[0]
        for arm in arms[1:]:
            sql = f"({sql}) {self.rng.choice(['UNION', 'UNION ALL', 'INTERSECT', 'EXCEPT', 'UNION', 'EXCEPT ALL', 'INTERSECT ALL'])} ({arm})"
        return Query(sql)

    def windows_in_each_other(self) -> Query:
        """The first rows of windows over windows, and of windows over groups."""
        source, name = self.base(), self._alias()
        keys = [field.text for field in source.key]
        if self.rng.random() < 0.5:
            field = self.rng.choice([field for field in source.fields if field.kind is not BYTEA])
            inner = f"SELECT {self.rng.choice(['DISTINCT ', ''])}{field.text} AS c FROM {source.sql}{self.where(source.fields)} GROUP BY {field.text}"
            over = self.rng.choice(["count(*) OVER ()", "row_number() OVER (ORDER BY c)", "rank() OVER (ORDER BY c DESC)"])
            return Query(
                f"SELECT c, {over} AS w FROM ({inner}) AS {name} ORDER BY {self.order(['c'])}{self.limit()}", True
            )
        names = ", ".join(f"x{idx}" for idx in range(len(keys)))
        listed = ", ".join(f"{key} AS x{idx}" for idx, key in enumerate(keys))

        def frame() -> str:
            return f"ROWS BETWEEN {self.rng.randint(0, 3)} PRECEDING AND {self.rng.randint(0, 3)} FOLLOWING"

        inner = f"SELECT {listed}, count(*) OVER (ORDER BY {', '.join(keys)} {frame()}) AS w FROM {source.sql}{self.where(source.fields)}"
        over = self.rng.choice([f"sum(w) OVER (ORDER BY {names} {frame()})", f"lead(w, 3) OVER (ORDER BY {names})"])
        return Query(f"SELECT {names}, {over} AS v FROM ({inner}) AS {name} ORDER BY {names}{self.limit()}", True)

    def windowed(self) -> Query:
        if self.rng.random() < 0.4:
            return self.windows_in_each_other()
        source = self.base()
        key = self.order([field.text for field in source.key])
        # DataFusion has no ranges of bytes.
        field = self.rng.choice([field for field in source.fields if field.kind is not BYTEA])
        part = f"PARTITION BY {self.rng.choice(source.fields).text} " if self.rng.random() < 0.6 else ""
        number = self.fields_of(source.fields, *NUMBERS)
        forms = [
            f"row_number() OVER ({part}ORDER BY {key})",
            f"count({field.text}) OVER ({part}ORDER BY {key})",
            f"count(*) OVER ({part})",
        ]
        forms += [f"rank() OVER ({part}ORDER BY {field.text})", f"dense_rank() OVER ({part}ORDER BY {field.text} DESC)"]
        forms += [
            f"lag({field.text}) OVER ({part}ORDER BY {key})",
            f"first_value({field.text}) OVER ({part}ORDER BY {key})",
        ]
        forms += [f"sum({self.rng.choice(number).text}) OVER ({part}ORDER BY {key})"] if number else []
        return Query(
            f"SELECT {', '.join(f.text for f in source.key)}, {self.rng.choice(forms)} AS w FROM {source.sql}{self.where(source.fields)}"
        )

    def with_cte(self) -> Query:
        inner, name = self.source(1), self._alias()
        picked = self.rng.sample(inner.fields, min(len(inner.fields), 3))
        columns = ", ".join(f"{field.text} AS x{idx}" for idx, field in enumerate(picked))
        fields = [Field(f"{name}.x{idx}", field.kind) for idx, field in enumerate(picked)]
        counted, is_approximate = self.aggregate(fields)
        head = f"WITH {name} AS (SELECT {columns} FROM {inner.sql}{self.where(inner.fields)})"
        if self.rng.random() < 0.5:
            return Query(
                f"{head} SELECT {counted} AS c0 FROM {name}", False, frozenset([0]) if is_approximate else frozenset()
            )
        other = self._alias()
        return Query(
            f"{head} SELECT {name}.x0, {other}.x0 AS y0 FROM {name} JOIN {name} AS {other} ON {name}.x0 = {other}.x0{self.where(fields)}"
        )
