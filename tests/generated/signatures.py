"""What expressions can be built with: operators, functions and casts of PostgreSQL's own catalog over the types of
values.py, and the forms of its grammar that are no functions.

Each is asked of Tarn once. What it does not have is counted and not generated: `n_missing` of `n_total`. What it is known
to answer otherwise stands in known.txt, and is generated only when asked for.
"""

import collections
import dataclasses
import pathlib
import random

from values import POOLS, TYPES, literal
from wire import Wire

KNOWN = pathlib.Path(__file__).with_name("known.txt")

# The letters of an operator, and whether its arguments are on both sides or behind it.
OPERATORS = """
SELECT oprname, oprleft::regtype::text, oprright::regtype::text, oprresult::regtype::text
FROM pg_operator o JOIN pg_proc p ON p.oid = o.oprcode
WHERE provolatile <> 'v' AND oprkind IN ('b', 'l')
ORDER BY 1, 2, 3
"""
# What is the implementation of an operator, a cast, an index or of input and output is called by its other name.
FUNCTIONS = """
SELECT proname, array_to_string(proargtypes::regtype[], ';'), prorettype::regtype::text
FROM pg_proc p
WHERE prokind = 'f' AND NOT proretset AND provolatile <> 'v' AND provariadic = 0 AND pronargs BETWEEN 1 AND 5
AND pronamespace = 'pg_catalog'::regnamespace AND proname !~ '^(pg_|_|has_|row_security|to_reg|hash|ts_|json_to_|col_desc|obj_desc|shobj)'
AND obj_description(oid, 'pg_proc') !~ '^(implementation of|internal|I/O|less-equal-greater|hash|sort support|bitwise|planner|selectivity|aggregate|equal image|convert|deprecated|window)'
AND NOT EXISTS (SELECT 1 FROM pg_operator WHERE oprcode = p.oid) AND NOT EXISTS (SELECT 1 FROM pg_amproc WHERE amproc = p.oid)
AND NOT EXISTS (SELECT 1 FROM pg_cast WHERE castfunc = p.oid)
ORDER BY 1, 2
"""
CASTS = """
SELECT castsource::regtype::text, casttarget::regtype::text FROM pg_cast ORDER BY 1, 2
"""
# By name, all of them (`None`), or those of these arguments: their answers are the machine's or the moment's, or they are words of the grammar, which
# are written otherwise.
LEFT_OUT = {
    "age": ("timestamp without time zone",),
    "current_setting": None,
    "format_type": None,
    "overlay": None,
    "position": None,
    "set_config": None,
}

# The forms of the grammar: the answer's type, what is written, the types of {0}, {1}, …
FORMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("text", "trim(both from {0})", ("text",)),
    ("text", "trim(leading {1} from {0})", ("text", "text")),
    ("text", "substring({0} from {1} for {2})", ("text", "integer", "integer")),
    ("text", "overlay({0} placing {1} from 2 for 1)", ("text", "text")),
    ("integer", "position({0} in {1})", ("text", "text")),
    ("boolean", "{0} LIKE {1}", ("text", "text")),
    ("boolean", "{0} NOT ILIKE {1}", ("text", "text")),
    ("boolean", "{0} SIMILAR TO '%(a|b)%'", ("text",)),
    ("numeric", "extract(year from {0})", ("date",)),
    ("numeric", "extract(epoch from {0})", ("interval",)),
    ("numeric", "extract(dow from {0})", ("timestamp without time zone",)),
    ("numeric", "extract(week from {0})", ("timestamp with time zone",)),
    ("numeric", "extract(milliseconds from {0})", ("time without time zone",)),
    ("timestamp without time zone", "{0} AT TIME ZONE 'Asia/Kathmandu'", ("timestamp with time zone",)),
    ("timestamp with time zone", "{0} AT TIME ZONE 'America/New_York'", ("timestamp without time zone",)),
    ("timestamp with time zone", "date_trunc('week', {0})", ("timestamp with time zone",)),
    ("timestamp without time zone", "date_trunc('quarter', {0})", ("timestamp without time zone",)),
    ("interval", "date_trunc('hour', {0})", ("interval",)),
    ("numeric", "{0}::numeric(10,2)", ("numeric",)),
    ("numeric", "{0}::numeric(12,3)", ("double precision",)),
    ("text", "{0}::varchar(3)", ("text",)),
    ("text", "to_char({0}, 'YYYY-MM-DD HH24:MI:SS.US TZ')", ("timestamp with time zone",)),
    ("text", "to_char({0}, 'FMDay, DD FMMonth YYYY, Q WW IW J')", ("date",)),
    ("text", "to_char({0}, 'FM999G999D00')", ("numeric",)),
    ("text", "to_char({0}, 'S09999')", ("integer",)),
    ("integer", "({0})[{1}]", ("integer[]", "integer")),
    ("text", "({0})[2]", ("text[]",)),
    ("integer[]", "ARRAY[{0}, {1}]", ("integer", "integer")),
    ("text[]", "ARRAY[{0}, 'z']", ("text",)),
    ("boolean", "{0} = ANY ({1})", ("integer", "integer[]")),
    ("boolean", "{0} <> ALL ({1})", ("text", "text[]")),
    ("boolean", "({0}, {1}) < ({2}, {3})", ("integer", "text", "integer", "text")),
    ("boolean", "({0}, {1}) OVERLAPS ({2}, {3})", ("date", "date", "date", "date")),
    ("text", "concat({0}, {1}, {2})", ("text", "integer", "boolean")),
    ("text", "concat_ws('-', {0}, {1})", ("text", "date")),
    ("text", "format('%s|%I|%L', {0}, {1}, {2})", ("integer", "text", "text")),
    ("jsonb", "jsonb_build_object('k', {0}, {1}, {2})", ("integer", "text", "timestamp without time zone")),
    ("jsonb", "jsonb_build_array({0}, {1}, {2})", ("numeric", "text", "boolean")),
    ("jsonb", "to_jsonb({0})", ("timestamp with time zone",)),
    ("jsonb", "to_jsonb({0})", ("text[]",)),
    ("jsonb", "jsonb_set({0}, '{{a}}', {1})", ("jsonb", "jsonb")),
    ("text", "string_to_array({0}, ',')::text", ("text",)),
)
# Of every type: the answer's is that of its arguments, or boolean.
ALIKE: tuple[tuple[str | None, str, int], ...] = (
    (None, "CASE WHEN {b} THEN {0} ELSE {1} END", 2),
    (None, "coalesce({0}, {1})", 2),
    (None, "nullif({0}, {1})", 2),
    (None, "greatest({0}, {1})", 2),
    (None, "least({0}, {1}, {2})", 3),
    ("boolean", "{0} IS NULL", 1),
    ("boolean", "{0} IS DISTINCT FROM {1}", 2),
    ("boolean", "{0} IN ({1}, {2})", 3),
    ("boolean", "{0} NOT IN ({1}, NULL)", 2),
    ("boolean", "{0} BETWEEN {1} AND {2}", 3),
    ("boolean", "{0} NOT BETWEEN SYMMETRIC {1} AND {2}", 3),
    ("text", "{0}::text", 1),
    ("integer", "num_nulls({0}, {1})", 2),
)
LOGIC = ("{0} AND {1}", "{0} OR {1}", "NOT {0}", "{0} IS TRUE", "{0} IS NOT FALSE", "{0} IS UNKNOWN")
# json can be compared with nothing.
INCOMPARABLE = ("json",)
# What a server answers that does not have a function, an operator, a cast or a piece of grammar.
NOT_THERE = ("42883", "0A000", "42601", "42704", "42846", "42804")


@dataclasses.dataclass(frozen=True)
class Signature:
    """`template` has a place for each argument, as `str.format` has them."""

    name: str
    template: str
    arguments: tuple[str, ...]
    result: str


class Signatures:
    def __init__(self, postgres: Wire, tarn: Wire, with_known: bool):
        everything = list(every(postgres))
        known = known_names()
        self.n_total = len(everything)
        there = [signature for signature in everything if is_there(tarn, signature)]
        self.n_missing = self.n_total - len(there)
        left = [signature for signature in there if with_known or signature.name not in known]
        self.n_known = len(there) - len(left)
        self.missing = sorted({signature.name for signature in everything} - {signature.name for signature in there})
        # By the answer's type, then by name: what has many signatures is not asked more often than what has one.
        self.by_result: dict[str, dict[str, list[Signature]]] = collections.defaultdict(
            lambda: collections.defaultdict(list)
        )
        for signature in left:
            self.by_result[signature.result][signature.name.split("(")[0]].append(signature)

    def pick(self, rng: random.Random, result: str) -> Signature | None:
        names = self.by_result.get(result)
        return rng.choice(names[rng.choice(list(names))]) if names else None


def every(postgres: Wire):
    for name, left, right, result in postgres.must(OPERATORS).rows:
        arguments = (right,) if left == "-" else (left, right)
        if is_ours(*arguments, result):
            written = "{0} " + name + " {1}" if left != "-" else name + " {0}"
            shown = f"{name}({','.join(arguments)})"
            yield Signature(shown, written, arguments, result)
    for name, types, result in postgres.must(FUNCTIONS).rows:
        arguments = tuple(types.split(";"))
        out = LEFT_OUT.get(name, ())
        if is_ours(*arguments, result) and out is not None and arguments != out:
            places = ", ".join(f"{{{idx}}}" for idx in range(len(arguments)))
            yield Signature(f"{name}({','.join(arguments)})", f"{name}({places})", arguments, result)
    for source, target in postgres.must(CASTS).rows:
        if is_ours(source, target) and source != target:
            yield Signature(f"{target}({source})", "{0}::" + target, (source,), target)
    for result, template, arguments in FORMS:
        yield Signature(f"{template}({','.join(arguments)})", template, arguments, result)
    for template in LOGIC:
        yield Signature(template, template, ("boolean",) * template.count("{"), "boolean")
    for result, template, n_arguments in ALIKE:
        for type_ in TYPES:
            if type_ not in INCOMPARABLE or template.startswith(("CASE", "coalesce", "{0} IS NULL", "{0}::")):
                arguments = (type_,) * n_arguments + (("boolean",) if "{b}" in template else ())
                written = template.replace("{b}", f"{{{n_arguments}}}")
                yield Signature(f"{template}({type_})", written, arguments, result or type_)


def is_ours(*types: str) -> bool:
    return all(type_ in POOLS for type_ in types)


def is_there(tarn: Wire, signature: Signature) -> bool:
    rng = random.Random(1)
    written = [literal(rng, type_, POOLS[type_][1]) for type_ in signature.arguments]
    answer = tarn.ask(f"SELECT {signature.template.format(*(f'({text})' for text in written))}")
    return answer.error is None or answer.error.state not in NOT_THERE


def known_names() -> set[str]:
    """The first word of each line is a signature as this page writes it; behind two blanks, why."""
    lines = KNOWN.read_text().splitlines() if KNOWN.exists() else []
    return {line.split("  ")[0] for line in lines if line.strip() and not line.startswith("#")}
