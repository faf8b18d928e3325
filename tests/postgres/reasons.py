"""Why may an answer differ? The reasons of the ledger, and the rules that find one for a new difference.

A rule is a pattern that is searched for in the statement and both answers, as they are printed; the first that is found
names the reason. A hand may write another reason into the ledger, and it stays. A reason that ends in `?` is of answers
that SQL leaves open, or PostgreSQL itself: they may differ in one run and not in the next.
"""

import re

from pair import Step
from wire import Answer

UNCLASSIFIED = "unclassified"

# Reason, what it is, and the pattern; `P:` and `T:` are the answers of PostgreSQL and Tarn.
RULES = [
    ("grammar", "what PostgreSQL's grammar refuses is taken", r"P: ERROR 42601: syntax error"),
    ("catalog", "pg_catalog has not what PostgreSQL's has", r"FROM pg_\w+|regclass"),
    ("recursive-cte", "the parts of a recursive query may have different types", r"WITH RECURSIVE"),
    (
        "join-using-columns",
        "USING does not put the merged column first where a table's columns were renamed",
        r"t1 \(a, b, c\) JOIN",
    ),
    ("float4-width", "percentile_cont of a real stays real", r"percentile_cont"),
    (
        "numeric-by-float",
        "roots, powers, logarithms and variances of numerics are computed as floats",
        r"\^|\b(?:sqrt|exp|ln|log|stddev\w*|var_\w+|variance|avg)\s*\(",
    ),
    ("float-windows", "sums of floats over windows are retracted, which loses digits", r"SUM\(n::float8\) OVER"),
    ("char-length", "texts of char(n) and varchar(n) in one column are shown with blanks", r"CHAR_TBL"),
    ("inner-order?", "the ORDER BY of a subquery in FROM is not kept where neither an aggregate nor LIMIT asks for it", r"from \(select[^)]*order by[^)]*\)"),
    (
        "arrays",
        "arrays of arrays as text, array_remove and array_replace once only, empty arrays, scales",
        r"\barray[\[_]",
    ),
    ("window-order?", "rows that a window's ORDER BY does not tell apart come in another order", r"\bover\b"),
    ("grouping-alias", "grouping sets of two names of one column group by one", r"group by alias1, rollup\(alias2\)"),
    ("order-of-ties?", "rows that ORDER BY does not tell apart come in another order", r"order by coalesce"),
    ("constant-folding", "an error that a constant would give is not raised if no row asks for it", r"THEN 1/0"),
    ("union-types", "columns of a UNION find another common type", r"UNION SELECT 'foo'"),
    (
        "planner-checks",
        "names, groups and DISTINCT that PostgreSQL refuses are planned",
        r"P: ERROR 42(?:702|803|P10|P18)",
    ),
    (
        "regex",
        "of alternatives the first is taken, not the longest; other bounds and escapes",
        r"regexp_|P: ERROR 2201B",
    ),
    (
        "follows-refused",
        "rests on a function, view or dependence that Tarn refused",
        r"concat\('|copy v_|vprep|ON COMMIT|P: ERROR (?:2BP01|23503)",
    ),
    ("analyze", "ANALYZE takes any name and does nothing", r"analyze"),
]
REASONS = {reason: text for reason, text, _ in RULES} | {UNCLASSIFIED: "not looked at yet"}


def reason_of(step: Step) -> str:
    text = f"{step.text.sql}\nP: {shown(step.postgres)}\nT: {shown(step.tarn)}"
    return next((reason for reason, _, rule in RULES if re.search(rule, text, re.IGNORECASE | re.DOTALL)), UNCLASSIFIED)


def shown(answer: Answer | None) -> str:
    """An answer as text, a row a line."""
    if answer is None:
        return "not asked"
    if answer.error:
        return f"ERROR {answer.error}"
    lines = ["  |  ".join("NULL" if cell is None else cell for cell in row) for row in answer.rows]
    lines += answer.copied.decode(errors="replace").splitlines()
    return "\n".join(lines or [" ".join(answer.tags)])
