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
    ("recursive-cte", "what PostgreSQL refuses in a recursive query is computed", r"WITH RECURSIVE"),
    (
        "join-using-columns",
        "USING does not put the merged column first where a table's columns were renamed",
        r"t1 \(a, b, c\) JOIN",
    ),
    (
        "integer-cast",
        "casts to integers cut what is behind the point, and stop at the edge of the type",
        r"::(?:float[48]|numeric)::int[248]|\.\d+\)?::int[248]|AS int[248]_value",
    ),
    (
        "integer-overflow",
        "+ - * of integers, gcd and lcm wrap or widen where PostgreSQL says 22003",
        r"P: ERROR 22003: (?:smallint|integer|bigint) out of range",
    ),
    (
        "logarithm-domain",
        "logarithms and powers outside of their domain are NaN or infinite",
        r"P: ERROR (?:2201E|2201F)|log\(1\.0",
    ),
    ("float-range", "what leaves the range of a float is infinite, NaN or 0", r"P: ERROR 22003"),
    ("variance-of-infinity", "the variance of infinity and NaN is 0", r"(?:var|stddev)_\w+\('(?:inf|nan)'"),
    (
        "float4-width",
        "aggregates of real are those of the widened values, or stay real",
        r"\(b\)|b::numeric|percentile_cont",
    ),
    (
        "numeric-by-float",
        "roots, powers, logarithms and variances of numerics are computed as floats",
        r"\^|\b(?:sqrt|exp|ln|log|stddev\w*|var_\w+|variance|avg)\s*\(",
    ),
    ("numeric-division", "a quotient of numerics has other digits", r"::numeric\s*/"),
    (
        "set-in-select-list",
        "a set-returning function in the select list gives one array instead of rows",
        r"generate_series\(.*T: .*\{|few\.id FROM few ORDER BY id, generate_series|P: 1\n2\n3\nT: \{1,2,3\}",
    ),
    ("float-windows", "sums of floats over windows are retracted, which loses digits", r"SUM\(n::float8\) OVER"),
    ("time-zone-history", "the zone database has local mean time where PostgreSQL's system has none", r"-07:5[23]"),
    ("timestamp-range", "infinity and NaN become timestamps", r"to_timestamp\("),
    (
        "interval-months",
        "not brought to one unit: 30 days are no month, 24 hours no day, half a week is hours",
        r"weeks?\b|1 month'::interval|d1\.f1 - d2\.f1",
    ),
    ("interval-input", "PostgreSQL's grammar of intervals is not held to", r"milliseconds'::interval"),
    ("date-and-interval", "a date and an interval are a date, not a timestamp", r"date '[^']+' [-+] interval"),
    (
        "date-fields",
        "fields, bins and years that PostgreSQL refuses or counts otherwise",
        r"EXTRACT\(.*FROM DATE|make_date|date_bin",
    ),
    ("time-input", "a time of the 61st second is taken; digits after the sixth are cut", r"'23:59:"),
    ("time-and-time", "two times are added", r"\+ time '"),
    ("junk-after-literal", "letters behind a number or a parameter are taken for a name", r"trailing junk"),
    ("parse-ident", "parse_ident splits at points and checks nothing", r"parse_ident"),
    ("type-name", "there is no type name: a literal beside one is not cut to 63 bytes", r"NAME_TBL"),
    ("char-length", "char(n) and varchar(n) are text: neither cut nor padded", r"\b(?:var)?char\(\d+\)"),
    (
        "functions-of-text",
        "functions of text take or give what PostgreSQL's do not",
        r"length\(42\)|chr\(0\)|'base64'",
    ),
    ("inner-order?", "the ORDER BY of a subquery in FROM is not kept", r"from \(select[^)]*order by[^)]*\)"),
    (
        "arrays",
        "arrays of arrays as text, array_remove and array_replace once only, empty arrays, scales",
        r"\barray[\[_]",
    ),
    ("full-join-using", "the merged column of FULL JOIN USING or NATURAL FULL JOIN is the left one", r"FULL JOIN"),
    ("count-of-row", "count(t.*) counts rows that an outer join made up", r"count\(\w+\.\*\)"),
    ("cte-twice", "a CTE that is named twice is computed twice", r"random\(\) FROM generate_series"),
    ("window-copied", "OVER (w …) forgets the ORDER BY of w", r"over \(w "),
    ("window-checks", "arguments of window functions are not checked", r"P: ERROR.*(?:window|nth_value|parameterless)"),
    ("window-order?", "rows that a window's ORDER BY does not tell apart come in another order", r"\bover\b"),
    ("grouping-alias", "grouping sets of two names of one column group by one", r"group by alias1, rollup\(alias2\)"),
    ("order-of-ties?", "rows that ORDER BY does not tell apart come in another order", r"order by coalesce"),
    (
        "implicit-block",
        "statements of one message are not one transaction, and COMMIT AND CHAIN is refused",
        r"from i_table|FROM trans_abc ORDER",
    ),
    ("transaction-modes", "isolation levels and READ ONLY are taken and not kept", r"transaction"),
    ("settings", "DateStyle and search_path are taken and not acted on", r"SHOW DateStyle|current_schema"),
    ("constant-folding", "an error that a constant would give is not raised if no row asks for it", r"THEN 1/0"),
    ("union-types", "columns of a UNION find another common type", r"UNION SELECT 'foo'"),
    (
        "planner-checks",
        "names, groups and DISTINCT that PostgreSQL refuses are planned",
        r"P: ERROR 42(?:702|803|P10|P18)",
    ),
    ("insert-replaces", "a plain INSERT replaces the row of its key", r"P: ERROR 23505"),
    ("float-division", "a float divided by 0 is infinite", r"P: ERROR 22012"),
    (
        "regex",
        "of alternatives the first is taken, not the longest; other bounds and escapes",
        r"regexp_|P: ERROR 2201B",
    ),
    ("join-alias", "an alias of a join mixes up columns of one name", r"JOIN atest5 b USING"),
    ("privileges", "privileges that were not granted by the same statements", r"has_\w+_privilege"),
    (
        "custom-settings",
        "settings with a point are taken by any name, or keep another value",
        r"custom|special|plpgsql|my_guc",
    ),
    ("collations", "there is one collation, and no conflict of two", r"collat"),
    (
        "follows-refused",
        "rests on a function, view or dependence that Tarn refused",
        r"concat\('|copy v_|vprep|ON COMMIT|P: ERROR (?:2BP01|23503)",
    ),
    ("search-path", "search_path is taken and not acted on", r"search_path|whereami"),
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
