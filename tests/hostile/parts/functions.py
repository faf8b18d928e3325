"""Every function the server knows, called with arguments that nobody should give."""

import random
import re
from collections.abc import Iterator

from stage import MEBIBYTE, Attack, Failure, Part, Stage

N_CALLS = 10
# What one statement may take beyond `query_memory_bytes` (128 MiB) before it counts as unbounded.
MAX_GROWTH_BYTES = 768 * MEBIBYTE
# What the settings let rows take that are written and not yet delivered: `recent_limit_bytes` (384 MiB), and as much
# while they are delivered and flushed.
MAX_ROWS_BYTES = 768 * MEBIBYTE

NUMBERS = [
    "0",
    "1",
    "-1",
    "NULL",
    "2147483647",
    "-2147483648",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775807 - 1",
    "2000000000",
]
NUMBERS += [
    "300000000",
    "1000000",
    "100",
    "0.5",
    "1e308::float8",
    "'NaN'::float8",
    "'Infinity'::float8",
    "-0.0::float8",
    "99999999999999999999.5",
]
TEXTS = [
    "''",
    "'a'",
    "NULL",
    "'abc'",
    "repeat('x', 1000000)",
    "repeat('a', 50000)",
    "repeat('ab', 20000000)",
    "'%'",
    "'\\'",
    "'ü\U0001f600'",
]
TEXTS += [
    "repeat('(', 5000)",
    "'(a*)*b'",
    "'x{1,1000}{1,1000}'",
    "'[[:alpha:]'",
    "repeat('1', 400)",
    "'day'",
    "'hex'",
    "'utf8'",
    "'2020-01-01'",
]
ARRAYS = [
    "ARRAY[1]",
    "ARRAY[]::int[]",
    "NULL::int[]",
    "range(0, 1000000)",
    "range(0, 300000000)",
    "generate_series(1, 2000000000)",
]
ARRAYS += [
    "ARRAY['a', NULL]",
    "ARRAY[ARRAY[1], ARRAY[2]]",
    "ARRAY['NaN'::float8]",
    "array_repeat('x', 10000000)",
    "array_repeat(array_repeat(1, 3000), 3000)",
]
TIMES = [
    "DATE '0001-01-01'",
    "DATE '9999-12-31'",
    "DATE '5874897-12-31'",
    "TIMESTAMP '1677-09-21 00:12:43'",
    "TIMESTAMP '2262-04-11 23:47:17'",
]
TIMES += [
    "TIMESTAMP '9999-12-31 23:59:59.999999'",
    "TIMESTAMPTZ '2020-01-01 00:00:00+14'",
    "TIME '23:59:59.999999'",
    "NULL::timestamp",
    "now()",
]
INTERVALS = [
    "INTERVAL '1 day'",
    "INTERVAL '0 seconds'",
    "INTERVAL '-1 month'",
    "INTERVAL '178956970 years'",
    "INTERVAL '1 nanosecond'",
    "NULL::interval",
]
OTHERS = [
    "true",
    "NULL",
    "'\\x00ff'::bytea",
    "decode(repeat('00', 1000000), 'hex')",
    "ROW(1)",
    "struct(1, 'a')",
    "map(ARRAY['a'], ARRAY[1])",
    "*",
    "w.v",
    "w.a",
]
EVERYTHING = [NUMBERS, TEXTS, ARRAYS, TIMES, INTERVALS, OTHERS]

# What the name of an argument says about it.
HINTS: list[tuple[str, list[str]]] = [
    (r"arr|list|vector", ARRAYS),
    (r"interval|stride|step", INTERVALS + NUMBERS),
    (r"date|time|origin|expression.*time", TIMES),
    (r"str|text|regex|pattern|flags|char|delim|format|substr|prefix|search|unit|part|key|algorithm|encoding", TEXTS),
    (
        r"num|^n$|int|size|index|count|length|pos|start|stop|begin|end|radix|max|min|percentile|offset|value|base|x|y",
        NUMBERS,
    ),
]
# The statement before, of this process.
LAST = [""]
SLEEPY = re.compile(r"pg_sleep|version|^tarn_")


class Functions(Part):
    """Every function of information_schema.routines with 0, NULL, -1, 2^63-1, NaN, huge texts and arrays: bounded
    memory, no panic, no hang."""

    name = "functions"
    statement_timeout_s = 3

    def prepare(self, stage: Stage) -> None:
        with stage.wire() as wire:
            wire.must("CREATE TABLE w (id int PRIMARY KEY, a int, v text)")
            wire.must("INSERT INTO w VALUES (1, 5, 'x'), (2, NULL, NULL), (3, -7, 'yy')")

    def attacks(self, stage: Stage) -> Iterator[Attack]:
        functions = known_functions(stage)
        order = random.Random(f"{stage.settings.seed}/functions")
        while True:
            names = sorted(functions)
            order.shuffle(names)
            for idx, name in enumerate(names):
                if idx % 8 == 0:
                    yield Attack("large on purpose", large_on_purpose)
                yield Attack(name, lambda s, rng, name=name: call_often(s, rng, name, functions[name]))


def known_functions(stage: Stage) -> dict[str, tuple[str, list[str]]]:
    """Name → kind and names of its arguments, all that it takes."""
    with stage.wire() as wire:
        answer = wire.must(
            "SELECT DISTINCT routine_name, function_type, syntax_example FROM information_schema.routines"
        )
    functions: dict[str, tuple[str, list[str]]] = {}
    for name, kind, syntax in answer.rows:
        inside = re.search(r"\((.*)\)", syntax or "")
        arguments = [part.strip(" .[]") for part in inside.group(1).split(",")] if inside else []
        if name and len(arguments) >= len(functions.get(name, ("", []))[1]):
            functions[name] = (kind or "SCALAR", [argument for argument in arguments if argument])
    if len(functions) < 50:
        raise Failure(f"information_schema.routines lists {len(functions)} functions")
    return functions


def argument(rng: random.Random, hint: str, kind: str) -> str:
    value = constant(rng, hint)
    # Functions have other ways for columns than for constants: the planner must not see that it is one.
    if kind != "TABLE" and value not in ("*", "w.a", "w.v") and rng.random() < 0.4:
        return f"CASE WHEN w.id {rng.choice(['> 0', '= 1'])} THEN {value} END"
    return value


def constant(rng: random.Random, hint: str) -> str:
    if rng.random() < 0.25:
        return rng.choice(rng.choice(EVERYTHING))
    for pattern, values in HINTS:
        if re.search(pattern, hint.lower()):
            return rng.choice(values)
    return rng.choice(rng.choice(EVERYTHING))


def call(rng: random.Random, name: str, kind: str, hints: list[str]) -> str:
    n_arguments = len(hints) if rng.random() < 0.8 else rng.randint(0, len(hints) + 2)
    hints = (hints + [""] * n_arguments)[:n_arguments]
    text = f'"{name}"({", ".join(argument(rng, hint, kind) for hint in hints)})'
    if kind == "TABLE":
        return f"SELECT count(*) FROM {text}"
    if kind == "WINDOW":
        text += " OVER (ORDER BY id)"
    elif kind == "AGGREGATE" and rng.random() < 0.4:
        text += rng.choice(
            [
                " OVER (ORDER BY id)",
                " FILTER (WHERE a > 0)",
                " OVER (ORDER BY id ROWS BETWEEN 9223372036854775807 PRECEDING AND CURRENT ROW)",
            ]
        )
    frame = rng.randrange(5)
    if frame == 0:
        return f"SELECT length(({text})::text) FROM w"
    if frame == 1:
        return f"SELECT count(x) FROM (SELECT {text} AS x FROM w, generate_series(1, {rng.choice([10, 3000, 20000])}) AS g (i)) AS s"
    if frame == 2:
        return f"SELECT id FROM w WHERE ({text})::text = 'x'"
    return f"SELECT {text} FROM w"


def survive(stage: Stage, sql: str) -> None:
    # What a statement that was cut off still holds may show with the next one.
    before_it, LAST[0] = LAST[0], sql
    stage.server.peak_rss_bytes = before = stage.server.rss_bytes()
    try:
        with stage.wire() as wire:
            answer = wire.ask(sql)
            if answer.error and answer.error.fields.get("S") != "FATAL":
                if answer.status != "I":
                    wire.must("ROLLBACK")
                wire.must("SELECT 1")
    except Exception as error:
        stage.peak_rss_bytes = max(stage.peak_rss_bytes, stage.server.peak_rss_bytes)
        about = f"{error}; {sql}; before it {before_it}"
        # The statement is what the reader wants; the type says whether the server hung.
        raise type(error)(about) if not hasattr(error, "fields") else Failure(about) from error
    peak = stage.server.peak_rss_bytes
    stage.peak_rss_bytes = max(stage.peak_rss_bytes, peak)
    if answer.error and answer.error.state.startswith("XX"):
        stage.note(f"{answer.error.state} {answer.error.fields.get('M', '')[:80]!r} for {sql[:80]!r}")
    if peak - before > MAX_GROWTH_BYTES + (MAX_ROWS_BYTES if sql.startswith("INSERT") else 0):
        raise Failure(f"took {(peak - before) // MEBIBYTE} MiB: {sql}")


def call_often(stage: Stage, rng: random.Random, name: str, signature: tuple[str, list[str]]) -> None:
    kind, hints = signature
    if SLEEPY.search(name):
        return
    for _ in range(N_CALLS):
        survive(stage, call(rng, name, kind, hints))


def large_on_purpose(stage: Stage, rng: random.Random) -> None:
    """Functions whose answer is far larger than what they are given, one inside the other."""
    n = rng.choice([1_000_000, 50_000_000, 300_000_000, 2_000_000_000])
    makes_text = rng.choice(
        [
            f"repeat('x', {n})",
            f"lpad('a', {n}, 'b')",
            f"rpad('a', {n})",
            "repeat(repeat('x', 60000), 60000)",
            "regexp_replace(repeat('a', 50000), 'a', repeat('b', 50000), 'g')",
            "replace(repeat('a', 100000), 'a', repeat('b', 100000))",
            f"array_to_string(range(0, {n}), ',')",
            "translate(repeat('a', 100000000), 'a', 'b')",
            f"encode(repeat('a', {n})::bytea, 'hex')",
            "concat(" + ", ".join(["repeat('x', 30000000)"] * 40) + ")",
            " || ".join(["repeat('x', 30000000)"] * 40),
            f"to_hex({n}) || repeat('y', {n})",
            "concat_ws(repeat('-', 1000000), " + ", ".join(["'x'"] * 900) + ")",
            "upper(repeat('\u0390', 300000000))",
            f"overlay('x' PLACING repeat('y', {n}) FROM 1)",
        ]
    )
    makes_array = rng.choice(
        [
            f"range(0, {n})",
            f"generate_series(1, {n})",
            f"array_repeat(1, {n})",
            f"array_resize([1], {n})",
            f"array_repeat(range(0, 10000), {n // 1000})",
            "string_to_array(repeat('a,', 100000000), ',')",
            "array_concat(range(0, 100000000), range(0, 100000000))",
            "regexp_match(repeat('a', 100000000), 'a*')",
        ]
    )
    sql = rng.choice(
        [
            f"SELECT length({makes_text})",
            f"SELECT cardinality({makes_array})",
            f"SELECT {makes_text}",
            f"SELECT max(length({makes_text.replace(str(n), str(1_000_000))} || value::text)) FROM generate_series(1, 20000) AS s(value)",
            f"SELECT sum(length(repeat(v, {n // 1000}))) FROM w, generate_series(1, 10000) AS s(value)",
            f"SELECT count(*) FROM (SELECT unnest({makes_array})) AS s",
            f"SELECT string_agg(repeat('x', 100000), ',') FROM generate_series(1, {n}) AS s(value)",
            f"SELECT array_agg(repeat('x', 1000)) FROM generate_series(1, {n}) AS s(value)",
            f"SELECT DISTINCT repeat('x', 100000) || value::text FROM generate_series(1, {n}) AS s(value)",
            f"SELECT repeat('x', 100000) AS t FROM generate_series(1, {n}) AS s(value) ORDER BY random()",
            f"INSERT INTO w SELECT 1000 + value, 1, repeat('x', 1000000) FROM generate_series(1, {n // 10000}) AS s(value)",
            f"UPDATE w SET v = {makes_text} WHERE id = 1",
            f"SELECT v || {makes_text} FROM w WHERE id = 1",
            f"SELECT count(*) FROM w WHERE v = {makes_text}",
            f"BEGIN; DECLARE c CURSOR FOR SELECT repeat('x', 100000) FROM generate_series(1, {n}) AS s(value); FETCH 50000 FROM c",
        ]
    )
    survive(stage, sql)
