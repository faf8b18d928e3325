"""Is docs/sql.md true? Runs its examples, has refused what it says is refused, and holds its lists of functions against the server's."""

import os
import pathlib
import re

import psycopg

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "sql.md").read_text()
DSN = f"host=127.0.0.1 port={os.environ['TARN_PORT']} user=tarn dbname=tarn"

# A row of a table: `statement` | SQLSTATE | …
REFUSED = re.compile(r"^\| `([^`]+)` \| ([0-9A-Z]{5}) \|", re.M)


def examples():
    """The statements of the page's SQL blocks, in order: each ends its line with a semicolon."""
    for block in re.findall(r"^```sql\n(.*?)^```", PAGE, re.M | re.S):
        yield from (part.strip() for part in re.split(r";\n", block) if part.strip())


def listed(kind):
    """The names under a heading of the functions' list."""
    section = re.search(rf"^### {kind}[^\n]*\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S)
    assert section, f"the page has no list of {kind} functions"
    return set(re.findall(r"`([a-z_0-9]+)`", section.group(1)))


def functions(connection):
    rows = connection.execute("SELECT DISTINCT routine_name, function_type FROM information_schema.routines").fetchall()
    for kind in ("SCALAR", "AGGREGATE", "WINDOW"):
        there = {name for name, its_kind in rows if its_kind == kind}
        wrong = there ^ listed(kind.capitalize())
        assert not wrong, f"{kind}: of the page or of the server alone: {sorted(wrong)}"


def refused(connection, text, state):
    try:
        for statement in text.split("; "):
            connection.execute(statement)
    except psycopg.Error as error:
        assert error.sqlstate == state, f"{text}: {error.sqlstate}, the page says {state}: {error}"
    else:
        raise AssertionError(f"{text}: is not refused")
    finally:
        connection.execute("ROLLBACK")


def main():
    with psycopg.connect(DSN, autocommit=True) as connection:
        functions(connection)
        n_examples = 0
        for statement in examples():
            try:
                connection.execute(statement)
            except psycopg.Error as error:
                raise AssertionError(f"{statement}: {error}") from error
            n_examples += 1
        rows = REFUSED.findall(PAGE)
        for text, state in rows:
            refused(connection, text, state)
        assert n_examples > 50 and len(rows) > 50, f"{n_examples} examples and {len(rows)} refused statements: the page is read wrongly"
        print(f"{n_examples} examples, {len(rows)} refused statements")


main()
