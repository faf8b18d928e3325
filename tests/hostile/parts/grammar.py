"""SQL texts of any size: every form of the grammar that contains itself, or a list.

Three kinds. A *wrapper* puts an expression into another one of the same type, so that wrappers are nested in any
mixture and depth; a *chain* is
a long row of elements that parsers read as a deep tree; a *list* is a long row that is flat. All take a size and give a
text.
Tables: `w (id int PRIMARY KEY, a int, b boolean, v text)`.
"""

import random
from collections.abc import Callable

Wrapper = Callable[[str], str]

# By the type that goes in and comes out.
WRAPPERS: dict[str, list[Wrapper]] = {
    "int": [
        lambda e: f"({e})",
        lambda e: f"- ({e})",
        lambda e: f"+{e}",
        lambda e: f"1 + {e}",
        lambda e: f"{e} + 1",
        lambda e: f"({e} * 1 - 0)",
        lambda e: f"abs({e})",
        lambda e: f"coalesce({e}, 1)",
        lambda e: f"nullif(coalesce(NULL, {e}), 77)",
        lambda e: f"greatest(0, {e}, 1)",
        lambda e: f"round({e})",
        lambda e: f"mod({e}, 7)",
        lambda e: f"CAST({e} AS int)",
        lambda e: f"{e}::int",
        lambda e: f"CASE WHEN {e} = 1 THEN 1 ELSE 2 END",
        lambda e: f"CASE WHEN true THEN {e} END",
        lambda e: f"CASE WHEN false THEN 1 ELSE {e} END",
        lambda e: f"CASE {e} WHEN 1 THEN 1 END",
        lambda e: f"(SELECT {e})",
        lambda e: f"(SELECT max(x) FROM (SELECT {e} AS x) AS s)",
        lambda e: f"(SELECT a FROM w WHERE id = {e} LIMIT 1)",
        lambda e: f"(WITH c AS (SELECT {e} AS x) SELECT x FROM c)",
        lambda e: f"(ARRAY[{e}])[1]",
        lambda e: f"length(repeat('x', {e}))",
        lambda e: f"EXTRACT(day FROM DATE '2020-01-01' + {e})",
        lambda e: f"(SELECT count(*) FILTER (WHERE a > {e}) FROM w)",
        lambda e: f"(SELECT sum(a) OVER (PARTITION BY {e} ORDER BY id) FROM w LIMIT 1)",
    ],
    "boolean": [
        lambda e: f"({e})",
        lambda e: f"NOT {e}",
        lambda e: f"NOT ({e})",
        lambda e: f"{e} AND true",
        lambda e: f"(b OR {e})",
        lambda e: f"({e}) IS NULL",
        lambda e: f"({e}) IS NOT TRUE",
        lambda e: f"({e}) = true",
        lambda e: f"({e}) IS DISTINCT FROM b",
        lambda e: f"({e}) IN (true, false)",
        lambda e: f"b NOT IN (({e}))",
        lambda e: f"EXISTS (SELECT 1 FROM w WHERE {e})",
        lambda e: f"a IN (SELECT a FROM w WHERE {e})",
        lambda e: f"CASE WHEN {e} THEN b ELSE false END",
        lambda e: f"({e})::boolean",
        lambda e: f"a BETWEEN 1 AND 2 AND ({e})",
        lambda e: f"({e}) = ANY (ARRAY[true])",
        lambda e: f"coalesce({e}, b)",
    ],
    "text": [
        lambda e: f"({e})",
        lambda e: f"{e} || 'x'",
        lambda e: f"'x' || {e}",
        lambda e: f"upper({e})",
        lambda e: f"replace({e}, 'a', 'b')",
        lambda e: f"substr({e}, 1, 5)",
        lambda e: f"substring({e} FROM 1 FOR 5)",
        lambda e: f"trim(BOTH 'x' FROM {e})",
        lambda e: f"trim({e})",
        lambda e: f"concat({e}, 'y')",
        lambda e: f"CAST({e} AS text)",
        lambda e: f"{e}::text",
        lambda e: f"coalesce({e}, v)",
        lambda e: f"CASE WHEN {e} LIKE 'x%' THEN v ELSE 'z' END",
        lambda e: f"CASE WHEN {e} = 'x' THEN 'y' END",
        lambda e: f"(SELECT {e})",
        lambda e: f"split_part({e}, ',', 1)",
        lambda e: f"left({e}, 3)",
    ],
}
ATOMS = {"int": ["1", "a", "id", "NULL"], "boolean": ["true", "b", "a = 1", "NULL"], "text": ["'x'", "v", "NULL"]}


def nested_expression(rng: random.Random, depth: int) -> tuple[str, str]:
    """A few wrappers in turn, `depth` in all. Its name and text."""
    kind = rng.choice(list(WRAPPERS))
    n_kinds = rng.choice([1, 1, 1, 2, 3])
    picked = [rng.randrange(len(WRAPPERS[kind])) for _ in range(n_kinds)]
    text = rng.choice(ATOMS[kind])
    # Inside out, so that a long text is built once: the halves of each wrapper are found with a mark.
    before, after = [], []
    for idx in range(depth):
        left, right = WRAPPERS[kind][picked[idx % n_kinds]]("\0").split("\0", 1)
        before.append(left)
        # A wrapper that repeats its argument would double the text: the others get an atom.
        after.append(right.replace("\0", ATOMS[kind][0]))
    return f"{kind} nest {picked}", "".join(reversed(before)) + text + "".join(after)


def joined(element: Callable[[int], str], by: str) -> Callable[[int], str]:
    return lambda n: by.join(element(idx) for idx in range(n))


def chain_of_ctes(n: int) -> str:
    rest = "".join(f", c{idx} AS (SELECT x + 1 AS x FROM c{idx - 1})" for idx in range(1, n))
    return f"WITH c0 AS (SELECT 1 AS x){rest} SELECT * FROM c{n - 1}"


def nested_ctes(n: int) -> str:
    return "WITH c AS (" * n + "SELECT 1 AS x" + ") SELECT * FROM c" * n


def subqueries_in_from(n: int) -> str:
    return "SELECT * FROM (" * n + "SELECT 1 AS x" + "".join(f") AS s{idx}" for idx in range(n))


def joins(kind: str) -> Callable[[int], str]:
    return lambda n: (
        "SELECT count(*) FROM w t0" + "".join(f" {kind} w t{idx} ON t{idx}.id = t{idx - 1}.id" for idx in range(1, n))
    )


def nested_joins(n: int) -> str:
    inner = "(" * n + "w t0" + "".join(f" JOIN w t{idx} ON true)" for idx in range(1, n + 1))
    return f"SELECT 1 FROM {inner} LIMIT 1"


def where(condition: Callable[[int], str], before: str = "SELECT count(*) FROM w WHERE ") -> Callable[[int], str]:
    return lambda n: before + condition(n)


def sets(n: int) -> str:
    return "UPDATE w SET " + ", ".join(f"a = {idx}" for idx in range(n)) + " WHERE id = -1"


# A left- or right-deep tree of n elements.
CHAINS: dict[str, Callable[[int], str]] = {
    "plus": lambda n: "SELECT " + "+".join(["1"] * n),
    "plus of a column": lambda n: f"SELECT {'+'.join(['a'] * n)} FROM w",
    "minus and times": lambda n: "SELECT 1" + "*1-1" * n,
    "concat": lambda n: f"SELECT {'||'.join(['v'] * n)} FROM w",
    "or": where(joined(lambda idx: f"a = {idx}", " OR ")),
    "or of two columns": where(joined(lambda idx: f"a = {idx} AND v = 'x{idx}'", " OR ")),
    "or not equal": where(joined(lambda idx: f"a <> {idx}", " OR ")),
    "or like": where(joined(lambda idx: f"v LIKE '%{idx}%'", " OR ")),
    "and": where(joined(lambda idx: f"a <> {idx}", " AND ")),
    "and of ranges": where(joined(lambda idx: f"(a > {idx} OR b)", " AND ")),
    "key and key": where(joined(lambda _: "id = 1", " AND "), "SELECT v FROM w WHERE "),
    "delete or": where(joined(lambda idx: f"a = -{idx} - 1", " OR "), "DELETE FROM w WHERE "),
    "update or": where(joined(lambda idx: f"a = -{idx} - 1", " OR "), "UPDATE w SET v = 'x' WHERE "),
    "casts": lambda n: "SELECT a" + "::int" * n + " FROM w",
    "is null": lambda n: "SELECT a" + " IS NULL" * n + " FROM w",
    "at time zone": lambda n: "SELECT now()" + " AT TIME ZONE 'UTC'" * n,
    "collate": lambda n: "SELECT 'x'" + ' COLLATE "C"' * n,
    "subscripts": lambda n: "SELECT ARRAY[1]" + "[1]" * n,
    "json arrows": lambda n: "SELECT '{}'" + " -> 'x'" * n,
    "comparisons": lambda n: "SELECT a" + " = a" * n + " FROM w",
    "between": lambda n: "SELECT 1 BETWEEN 0 AND 2" + " BETWEEN false AND true" * n,
    "not": lambda n: "SELECT " + "NOT " * n + "true",
    "minus signs": lambda n: "SELECT " + "- " * n + "1",
    "parentheses": lambda n: "SELECT " + "(" * n + "1" + ")" * n,
    "open parentheses": lambda n: "SELECT " + "(" * n,
    "open brackets": lambda n: "SELECT " + "ARRAY[" * n,
    "open cases": lambda n: "SELECT " + "CASE WHEN " * n,
    "open functions": lambda n: "SELECT " + "abs(" * n,
    "open selects": lambda n: "(SELECT " * n,
    "union all": lambda n: " UNION ALL ".join(["SELECT 1"] * n),
    "union": lambda n: " UNION ".join(["SELECT 1"] * n),
    "except": lambda n: " EXCEPT ".join(["SELECT 1"] * n),
    "intersect": lambda n: " INTERSECT ".join(["SELECT 1"] * n),
    "union to the right": lambda n: "SELECT 1 UNION (" * n + "SELECT 1" + ")" * n,
    "parenthesised select": lambda n: "(" * n + "SELECT 1" + ")" * n,
    "ctes": chain_of_ctes,
    "nested ctes": nested_ctes,
    "from": subqueries_in_from,
    "lateral": lambda n: "SELECT 1 FROM w t" + "".join(f", LATERAL (SELECT t.a) AS l{idx}" for idx in range(n)),
    "joins": joins("JOIN"),
    "left joins": joins("LEFT JOIN"),
    "nested joins": nested_joins,
    "comma joins": lambda n: "SELECT 1 FROM " + ", ".join(f"w t{idx}" for idx in range(n)) + " LIMIT 1",
    "exists": lambda n: "SELECT 1" + " WHERE EXISTS (SELECT 1" * n + ")" * n,
    "in subqueries": lambda n: "SELECT 1 FROM w" + " WHERE a IN (SELECT a FROM w" * n + ")" * n,
    "scalar subqueries": lambda n: "SELECT (" * n + "SELECT 1" + ")" * n,
    "explain": lambda n: "EXPLAIN " * n + "SELECT 1",
    "prepare": lambda n: "".join(f"PREPARE p{idx} AS " for idx in range(n)) + "SELECT 1",
    "array types": lambda n: "SELECT CAST(NULL AS int" + "[]" * n + ")",
    "array of type": lambda n: "SELECT CAST(NULL AS " + "ARRAY<" * n + "int" + ">" * n + ")",
    "structs": lambda n: "SELECT CAST(NULL AS " + "STRUCT<a " * n + "int" + ">" * n + ")",
    "intervals": lambda n: "SELECT " + "INTERVAL " * n + "'1 day'",
    "rows": lambda n: "SELECT " + "ROW(" * n + "1" + ")" * n,
    "dollar quotes": lambda n: "SELECT " + "".join(f"$q{idx}$" for idx in range(n)),
    "nested comments": lambda n: "/*" * n + " x " + "*/" * n + " SELECT 1",
    "begin": lambda n: "BEGIN; " * n,
    "lambdas": lambda n: "SELECT " + "x -> " * n + "1",
    "grouping sets": lambda n: (
        "SELECT count(*) FROM w GROUP BY GROUPING SETS (" + "(a, ROLLUP (" * n + "b" + "))" * n + ")"
    ),
}

# A flat row of n elements.
LISTS: dict[str, Callable[[int], str]] = {
    "in numbers": where(lambda n: f"a IN ({', '.join(map(str, range(n)))})"),
    "not in numbers": where(lambda n: f"a NOT IN ({', '.join(map(str, range(n)))})"),
    "in texts": where(lambda n: "v IN (" + ", ".join(f"'t{idx}'" for idx in range(n)) + ")"),
    "in expressions": where(lambda n: "a IN (" + ", ".join(f"id + {idx}" for idx in range(n)) + ")"),
    "in keys": where(lambda n: f"id IN ({', '.join(map(str, range(n)))})", "SELECT v FROM w WHERE "),
    "any array": where(lambda n: f"a = ANY (ARRAY[{', '.join(map(str, range(n)))}])"),
    "columns": lambda n: "SELECT " + ", ".join(["1"] * n),
    "columns of a table": lambda n: "SELECT " + ", ".join(f"a AS c{idx}" for idx in range(n)) + " FROM w",
    "stars": lambda n: "SELECT " + ", ".join(["*"] * n) + " FROM w",
    "aggregates": lambda n: "SELECT " + ", ".join(f"sum(a + {idx})" for idx in range(n)) + " FROM w",
    "windows": lambda n: "SELECT " + ", ".join(f"sum(a) OVER (ORDER BY a + {idx})" for idx in range(n)) + " FROM w",
    "values": lambda n: "VALUES " + ", ".join(f"({idx}, 'x')" for idx in range(n)),
    "values in from": lambda n: (
        "SELECT count(*) FROM (VALUES " + ", ".join(f"({idx})" for idx in range(n)) + ") AS s (x)"
    ),
    "insert rows": lambda n: (
        "INSERT INTO w VALUES "
        + ", ".join(f"({-idx - 1}, 1, true, 'x')" for idx in range(n))
        + " ON CONFLICT DO NOTHING"
    ),
    "insert columns": lambda n: "INSERT INTO w (" + ", ".join(["a"] * n) + ") VALUES (1)",
    "sets": sets,
    "arguments": lambda n: "SELECT coalesce(" + ", ".join(["NULL"] * n) + ", 1)",
    "concat arguments": lambda n: "SELECT concat(" + ", ".join(["'x'"] * n) + ")",
    "array": lambda n: "SELECT ARRAY[" + ", ".join(["1"] * n) + "]",
    "whens": lambda n: "SELECT CASE a" + "".join(f" WHEN {idx} THEN {idx}" for idx in range(n)) + " END FROM w",
    "whens of conditions": lambda n: (
        "SELECT CASE" + "".join(f" WHEN a = {idx} THEN 'x{idx}'" for idx in range(n)) + " END FROM w"
    ),
    "order by": lambda n: "SELECT a FROM w ORDER BY " + ", ".join(f"a + {idx}" for idx in range(n)),
    "group by": lambda n: "SELECT count(*) FROM w GROUP BY " + ", ".join(f"a + {idx}" for idx in range(n)),
    "rollup": lambda n: "SELECT count(*) FROM w GROUP BY ROLLUP (" + ", ".join(f"a + {idx}" for idx in range(n)) + ")",
    "cube": lambda n: "SELECT count(*) FROM w GROUP BY CUBE (" + ", ".join(f"a + {idx}" for idx in range(n)) + ")",
    "partition by": lambda n: "SELECT sum(a) OVER (PARTITION BY " + ", ".join(["a"] * n) + ") FROM w",
    "independent ctes": lambda n: "WITH " + ", ".join(f"c{idx} AS (SELECT 1)" for idx in range(n)) + " SELECT 1",
    "statements": lambda n: "SELECT 1; " * n,
    "semicolons": lambda n: ";" * (n * 20) + "SELECT 1",
    "blanks": lambda n: "SELECT" + " \n\t" * (n * 10) + "1",
    "comment": lambda n: "SELECT /* " + "x" * (n * 40) + " */ 1",
    "line comments": lambda n: "SELECT 1 " + "-- x\n" * (n * 4),
    "open comment": lambda n: "SELECT 1 /*" + "x" * (n * 40),
    "literal": lambda n: "SELECT length('" + "x" * (n * 40) + "')",
    "quotes": lambda n: "SELECT length('" + "''" * (n * 10) + "')",
    "open literal": lambda n: "SELECT '" + "x" * (n * 40),
    "number": lambda n: "SELECT " + "9" * n,
    "identifier": lambda n: 'SELECT 1 AS "' + "x" * n + '"',
    "dotted name": lambda n: "SELECT " + ".".join(["a"] * n),
    "unknown table": lambda n: "SELECT * FROM " + "t" * n,
    "create columns": lambda n: (
        f"CREATE TABLE wide_{n} (id int PRIMARY KEY"
        + "".join(f", c{idx} int" for idx in range(n))
        + f"); DROP TABLE wide_{n}"
    ),
    "create name": lambda n: 'CREATE TABLE "' + "n" * n + '" (id int PRIMARY KEY)',
    "drop names": lambda n: "DROP TABLE IF EXISTS " + ", ".join(f"nothing{idx}" for idx in range(n)),
    "parameters": lambda n: "SELECT " + ", ".join(f"${idx + 1}::int" for idx in range(n)),
    "one far parameter": lambda n: f"SELECT ${n * 1000}",
    "like": lambda n: "SELECT count(*) FROM w WHERE v LIKE '" + "%a" * n + "'",
    "similar": lambda n: "SELECT count(*) FROM w WHERE v ~ '" + "(a|b)*" * n + "'",
    "regex": lambda n: "SELECT count(*) FROM w WHERE v ~ '(" + "x{1,100}" * min(n, 2000) + ")'",
    "regex nest": lambda n: "SELECT count(*) FROM w WHERE v ~ '" + "(" * n + "a" + ")*" * n + "'",
    "json": lambda n: "SELECT '" + "[" * n + "]" * n + "'::json",
    "set": lambda n: "SET application_name = '" + "x" * n + "'",
    "call": lambda n: "CALL tarn.deliver('" + "x" * n + "')",
    "copy columns": lambda n: "COPY w (" + ", ".join(["a"] * n) + ") FROM STDIN",
    "execute arguments": lambda n: "EXECUTE nothing (" + ", ".join(["1"] * n) + ")",
    "offset": lambda n: "SELECT a FROM w LIMIT " + "1" * min(n, 100) + " OFFSET " + "1" * min(n, 30),
}

# What is put around a text.
FRAMES: list[tuple[str, Callable[[str], str]]] = [
    ("", lambda sql: sql),
    ("", lambda sql: sql),
    ("", lambda sql: sql),
    ("syntax error behind", lambda sql: sql + " SELEC ) FROM"),
    ("explain", lambda sql: "EXPLAIN " + sql),
    ("prepare", lambda sql: "PREPARE p AS " + sql + "; DEALLOCATE ALL"),
    ("copy", lambda sql: f"COPY ({sql}) TO STDOUT"),
    ("cursor", lambda sql: f"BEGIN; DECLARE c CURSOR FOR {sql}; FETCH ALL FROM c; COMMIT"),
    ("insert select", lambda sql: f"INSERT INTO w (id, a) SELECT 1000000, 1 FROM ({sql}) AS s WHERE false"),
    ("exists", lambda sql: f"SELECT count(*) FROM w WHERE EXISTS ({sql})"),
    ("two", lambda sql: f"{sql}; {sql}"),
]
