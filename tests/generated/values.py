"""The types that expressions are made of, and a pool of values of each: few usual ones, and those at which programs
go wrong.

A value is the text that PostgreSQL reads as that type. Numbers are within 38 digits: what is beyond is
refused by name in Tarn (docs/sql.md), and would only be counted. No letter has an upper case beyond ASCII: in PostgreSQL
that is its locale's.
"""

import random

POOLS: dict[str, tuple[str, ...]] = {
    "boolean": ("true", "false"),
    "smallint": ("0", "1", "-1", "2", "7", "100", "32767", "-32768"),
    "integer": ("0", "1", "-1", "2", "3", "10", "-7", "42", "1000", "123456", "2147483647", "-2147483648"),
    "bigint": ("0", "1", "-1", "2", "5", "-12", "1000000007", "4000000000", "9223372036854775807", "-9223372036854775808"),
    "real": ("0", "1", "-1", "0.5", "2.5", "-3.25", "1e10", "1.1", "Infinity", "NaN"),
    "double precision": (
        "0", "-0", "1", "-1", "0.5", "-2.5", "3.14159", "1e-5", "123456.789", "1e15", "1e100", "Infinity", "-Infinity", "NaN",
    ),
    "numeric": ("0", "1", "-1", "0.5", "-2.50", "3.14159", "100", "12345.678", "0.001", "-99.99", "1e10", "7.000"),
    "text": (
        "", " ", "a", "b", "abc", "ABC", "Hello World", "  pad  ", "a,b,,c", "%", "a_c", "'quoted'", "日本語", "\U0001f600",
        "12", "-3.5", "x" * 30, "tab\there", "a.b.c", "true", "\\", "{1,2}", "2024-02-29",
    ),
    "date": ("2024-02-29", "2000-01-01", "1999-12-31", "1970-01-01", "1969-12-31", "2023-03-01", "1900-01-01", "2090-06-15"),
    "time without time zone": ("00:00:00", "12:34:56", "23:59:59.999999", "06:30:00.5", "12:00:00"),
    "timestamp without time zone": (
        "2024-02-29 12:34:56.789012", "2000-01-01 00:00:00", "1999-12-31 23:59:59.999999", "1970-01-01 00:00:00",
        "1901-12-13 20:45:52", "2024-03-10 02:30:00", "2024-11-03 01:30:00", "2090-06-15 06:00:00",
    ),
    "timestamp with time zone": (
        "2024-02-29 12:34:56.789012+00", "2000-01-01 00:00:00+01", "1999-12-31 23:59:59.999999-08", "1970-01-01 00:00:00+00",
        "2024-03-10 10:30:00+00", "2024-11-03 09:30:00+00", "2090-06-15 06:00:00+05:45",
    ),
    "interval": (
        "0", "1 day", "-1 day", "1 mon", "1 year 2 mons", "3 days 04:05:06.5", "-3 days +04:05:06", "25:00:00", "00:00:00.000001",
        "1 year -1 day", "10 years", "-00:30:00",
    ),
    "inet": (
        "0.0.0.0", "10.1.2.3", "10.1.2.3/8", "10.0.0.0/8", "192.168.1.0/24", "255.255.255.255", "::", "::1", "fe80::a/64",
        "::ffff:10.1.2.3", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/0",
    ),
    "uuid": (
        "00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ),
    "bytea": ("\\x", "\\x00", "\\x616263", "\\xff00ff", "\\x0102030405060708"),
    "jsonb": (
        "null", "true", "1", "-2.50", '"a"', "[]", "{}", "[1, 2, 3]", '["a", "b", null]', '{"a": 1, "b": [1, {"c": null}]}',
        '{"a": {"b": {"c": "deep"}}, "k": "v"}', "[[1], [2, [3]]]", '{"b": 1, "a": 2, "aa": 3}',
    ),
    "json": ("null", "1", '"a"', '[1, 2, {"a": 3}]', '{"a": 1, "b": {"c": [true]}, "a": 2}', "{}"),
    "integer[]": ("{}", "{1}", "{1,2,3}", "{3,NULL,1}", "{-1,0,1,1}", "{NULL}"),
    "text[]": ("{}", "{a}", "{a,b,c}", '{"",NULL,"x y"}', '{"NULL","a,b"}', "{b,a,b}"),
}  # fmt: skip
TYPES = tuple(POOLS)
# What most expressions of most programs are made of.
USUAL = ("integer", "integer", "bigint", "text", "text", "numeric", "double precision", "boolean", "date", "timestamp with time zone")

NULL_SHARE = 0.06
# Written as programs write them, without a type.
BARE = {"integer": 0.7, "numeric": 0.5, "text": 0.6, "boolean": 0.8}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def value(rng: random.Random, type_: str) -> str | None:
    return None if rng.random() < NULL_SHARE else rng.choice(POOLS[type_])


def literal(rng: random.Random, type_: str, text: str | None) -> str:
    if text is None:
        return f"NULL::{type_}"
    if rng.random() < BARE.get(type_, 0):
        # A sign in parentheses, or a cast behind it would be that of the number alone.
        written = {"text": quoted(text), "numeric": text if "." in text else f"{text}::numeric"}.get(type_, text)
        return f"({written})" if written.startswith("-") else written
    return f"{quoted(text)}::{type_}"
