"""Types that Tarn and PostgreSQL both have, and a small pool of values of each: few, so that keys meet and predicates
find something.

Values are SQL literals that mean the same on both sides. What the two differ in on purpose, or still differ in by
faults of PostgreSQL's meaning that are
known, is in the pools `KNOWN` and is used only when asked for.
"""

import dataclasses
import random

NULL = "NULL"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type: its name in SQL, literals in their order, and what can be done with it."""

    name: str
    literals: tuple[str, ...]
    is_key: bool = True
    has_min: bool = True


def texts(*values: str) -> tuple[str, ...]:
    return tuple("'" + value.replace("'", "''") + "'" for value in values)


INT = Kind("int", ("(-100000)", "(-3)", "(-1)", "0", "1", "2", "3", "7", "10", "12", "100000"))
BIGINT = Kind("bigint", ("(-4000000000)", "(-2)", "0", "1", "3", "10", "4000000000"))
SMALLINT = Kind("smallint", ("(-5)", "0", "1", "5", "30000"))
BOOLEAN = Kind("boolean", ("false", "true"), has_min=False)
# Without letters that have an upper case beyond ASCII: PostgreSQL leaves these alone in the C locale.
TEXT = Kind(
    "text",
    texts(
        "",
        " ",
        "%",
        "'",
        "''",
        "A",
        "NULL",
        "\\",
        "\\N",
        "_",
        "a",
        "a b",
        "a'b",
        "a''b",
        "ab",
        "b",
        "x\\' OR true --",
        "y' --",
        "it''s",
        "\\.",
        "tab\tnew\nline",
        "{1,2}",
        "pg_catalog",
        "日本",
        "\U0001f600",
        "z" * 90,
    ),
)
DOUBLE = Kind(
    "double precision",
    tuple(
        f"'{value}'::float8"
        for value in ("-Infinity", "-1.5", "-0", "0", "0.25", "1", "1024.5", "1e20", "Infinity", "NaN")
    ),
    is_key=False,
)
REAL = Kind("real", tuple(f"'{value}'::real" for value in ("-2.5", "-0", "0", "0.5", "3", "NaN")), is_key=False)
NUMERIC = Kind(
    "numeric(12,2)",
    tuple(f"({value})::numeric(12,2)" for value in ("-99999.99", "-0.01", "0", "0.50", "1", "1.50", "123456.78")),
)
DATE = Kind(
    "date", tuple(f"DATE '{value}'" for value in ("1901-02-03", "1969-12-31", "1970-01-01", "2020-02-29", "2024-12-31"))
)
TIMESTAMP = Kind(
    "timestamp",
    tuple(
        f"TIMESTAMP '{value}'"
        for value in (
            "1969-12-31 23:59:59.999999",
            "1970-01-01 00:00:00",
            "2020-02-29 12:30:00",
            "2024-12-31 08:00:00.000001",
        )
    ),
)
TIMESTAMPTZ = Kind(
    "timestamptz",
    tuple(
        f"'{value}+00'::timestamptz"
        for value in ("1969-12-31 23:59:59", "2020-02-29 12:30:00", "2024-12-31 08:00:00.5")
    ),
)
UUID = Kind(
    "uuid",
    tuple(
        f"'{value}'::uuid"
        for value in (
            "00000000-0000-0000-0000-000000000001",
            "7fffffff-0000-4000-8000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
        )
    ),
    has_min=False,
)
BYTEA = Kind("bytea", tuple(f"'{value}'::bytea" for value in ("\\x", "\\x00", "\\x00ff", "\\x61")), has_min=False)

KINDS = (INT, BIGINT, SMALLINT, BOOLEAN, TEXT, DOUBLE, REAL, NUMERIC, DATE, TIMESTAMP, TIMESTAMPTZ, UUID, BYTEA)
# More often: what most programs have.
USUAL = (INT, INT, BIGINT, TEXT, TEXT, BOOLEAN)
KEYS = (INT, INT, BIGINT, SMALLINT, TEXT, TEXT, BOOLEAN, DATE, TIMESTAMP, TIMESTAMPTZ, UUID, NUMERIC)

# Values of faults that belong to another issue: overflow, instants beyond 1677–2262, offsets, fractions into integers,
# wide numbers.
KNOWN: dict[str, tuple[str, ...]] = {
    "int": ("2147483647", "(-2147483648)"),
    "bigint": ("9223372036854775807",),
    "double precision": ("1e300", "0.1"),
    "date": ("DATE '9999-12-31'", "DATE '0001-01-01'"),
    "timestamp": ("TIMESTAMP '9999-12-31 00:00:00'",),
    "timestamptz": ("timestamptz '2020-01-01 00:00:00+05'",),
    "numeric(12,2)": ("1.005", "12345678901234567890.5"),
}

NUMBERS = (INT, BIGINT, SMALLINT)


def literal(rng: random.Random, kind: Kind, with_known: bool = False) -> str:
    pool = kind.literals + (KNOWN.get(kind.name, ()) if with_known else ())
    # Some values far more often than others, as in life.
    return pool[min(rng.randrange(len(pool)), rng.randrange(len(pool)))] if rng.random() < 0.5 else rng.choice(pool)
