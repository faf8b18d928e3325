"""Why may an answer differ? The reasons of the ledger, and the rules that find one for a new difference.

A rule is a pattern that is searched for in the statement and both answers, as they are printed; the first that is found
names the reason. A hand may write another reason into the ledger, and it stays. A reason that ends in `?` is of answers
that SQL leaves open, or PostgreSQL itself: they may differ in one run and not in the next, and are counted apart.
"""

import re

from pair import Step
from wire import Answer

UNCLASSIFIED = "unclassified"

# Reason, what it is, and the pattern; `P:` and `T:` are the answers of PostgreSQL and Tarn.
RULES = [
    ("grammar", "what PostgreSQL's grammar refuses is taken", r"P: ERROR 42601: syntax error"),
    ("catalog", "pg_catalog has not what PostgreSQL's has", r"FROM pg_\w+|regclass"),
    (
        "numeric-by-float",
        "roots, powers, logarithms and variances of numerics are computed as floats",
        r"\^|\b(?:sqrt|exp|ln|log|stddev\w*|var_\w+|variance|avg)\s*\(",
    ),
    ("arrays", "arrays of arrays, empty arrays", r"\barray[\[_]"),
    (
        "planner-checks",
        "names, groups and DISTINCT that PostgreSQL refuses are planned",
        r"P: ERROR 42(?:702|803|P10|P18)",
    ),
    ("regex", "other bounds and escapes", r"regexp_|P: ERROR 2201B"),
    (
        "follows-refused",
        "rests on a function, view or dependence that Tarn refused",
        r"concat\('|copy v_|vprep|ON COMMIT|P: ERROR (?:2BP01|23503)",
    ),
]
# Of answers that SQL leaves open: they are not counted, so no rule finds them. A hand writes them, which has looked at the statement.
OPEN = {
    "inner-order?": "the ORDER BY of a subquery in FROM is not kept where neither an aggregate nor LIMIT asks for it",
    "window-order?": "rows that a window's ORDER BY does not tell apart come in another order",
    "order-of-ties?": "rows that ORDER BY does not tell apart come in another order",
    "constant-folding?": "an error that a constant would give is not raised if no row asks for it",
}
REASONS = {reason: text for reason, text, _ in RULES} | OPEN | {UNCLASSIFIED: "not looked at yet"}


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
