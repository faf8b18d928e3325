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
    # A session knows those of the catalog from when it first asks for it.
    connection.execute("SELECT 1 FROM pg_catalog.pg_class LIMIT 1")
    rows = connection.execute("SELECT DISTINCT routine_name, function_type FROM information_schema.routines").fetchall()
    for kind in ("SCALAR", "AGGREGATE", "WINDOW"):
        there = {name for name, its_kind in rows if its_kind == kind}
        others = there ^ listed(kind.capitalize())
        assert not others, f"{kind}: of the page or of the server alone: {sorted(others)}"


def wrong(connection, text, state=None):
    """What is wrong with the page about a text, which is to work, or to be refused with `state`."""
    try:
        # A semicolon within quotes ends no statement.
        for statement in re.split(r"; (?=(?:[^']*'[^']*')*[^']*$)", text):
            connection.execute(statement)
        return f"{text}: is not refused" if state else None
    except psycopg.Error as error:
        return None if error.sqlstate == state else f"{text}: {error.sqlstate}, the page says {state or 'that it works'}: {error}"
    finally:
        if state:
            connection.execute("ROLLBACK")


def main():
    with psycopg.connect(DSN, autocommit=True) as connection:
        functions(connection)
        told = [(text, None) for text in examples()]
        refused = REFUSED.findall(PAGE)
        assert len(told) > 50 and len(refused) > 50, f"{len(told)} examples and {len(refused)} refused statements: the page is read wrongly"
        found = [flaw for text, state in told + refused if (flaw := wrong(connection, text, state))]
        assert not found, "\n".join(found)
        print(f"{len(told)} examples, {len(refused)} refused statements")


main()
