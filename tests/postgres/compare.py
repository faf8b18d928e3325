"""Do two answers to one statement say the same?

Values are compared by the text that the wire has of them. Where the texts differ, a column's type decides whether the
value does: `DIGITS` is the class of what differs in digits or form alone (the scale of a numeric, the last digits of a
float, padding, white space of a json, the order of ties). `OPEN` is what the ledger says of a difference that SQL
leaves open; nothing is judged so here.
"""

import dataclasses
import decimal
import json
import math
import re

from script import OTHER, SPACE, WORD, Token, bare, tokens
from wire import Answer

SAME = "same"
SAME_STATE = "same-state"
DIGITS = "digits"
OPEN = "open"
WRONG = "WRONG"
ACCEPTED = "ACCEPTED"
MISSING = "missing"
OTHER_STATE = "other-state"
NOT_COMPARED = "not-compared"
OUTCOMES = (SAME, SAME_STATE, DIGITS, OPEN, WRONG, ACCEPTED, MISSING, OTHER_STATE, NOT_COMPARED)

FLOAT4, FLOAT8, NUMERIC, CHAR, JSON, JSONB = 700, 701, 1700, 1042, 114, 3802
# Of floats, that far apart by their last digits: some six and fifteen digits are what a type promises.
FLOAT_TOLERANCES = {FLOAT4: 2e-6, FLOAT8: 1e-13}
# Arrays of numbers, and what their items are; an item ends at one of these.
ARRAYS = {1021: FLOAT4, 1022: FLOAT8, 1231: NUMERIC}
ARRAY_PARTS = re.compile(r"([{},])")
WRITES = ("INSERT", "UPDATE", "DELETE", "MERGE", "COPY")
TIMED_OUT = "57014"
# What PostgreSQL refuses for its size or depth, which is not the same here: SQLSTATEs' class, and words of its regular expressions.
LIMITS = "54"
TOO_COMPLEX = "regular expression is too complex"


@dataclasses.dataclass
class Verdict:
    outcome: str
    # Why it was not compared; which state or message was answered instead.
    about: str = ""
    names_differ: bool = False
    types_differ: bool = False


def judge(sql: str, theirs: Answer, ours: Answer) -> Verdict:
    """`theirs` is PostgreSQL's answer, which is right."""
    if theirs.error and theirs.error.state == TIMED_OUT:
        return Verdict(NOT_COMPARED, "PostgreSQL took too long")
    if theirs.error and not ours.error and is_limit(theirs):
        return Verdict(NOT_COMPARED, "a limit of PostgreSQL's")
    if theirs.error and ours.error:
        if theirs.error.state == ours.error.state:
            return Verdict(SAME_STATE)
        return Verdict(OTHER_STATE, f"{theirs.error.state} → {ours.error}")
    if ours.error:
        return Verdict(MISSING, str(ours.error))
    if theirs.error:
        return Verdict(ACCEPTED, str(theirs.error))
    outcome = weaker(rows_outcome(sql, theirs, ours), tags_outcome(theirs, ours))
    return Verdict(
        outcome,
        names_differ=theirs.names != ours.names,
        types_differ=theirs.oids != ours.oids,
    )


def is_limit(answer: Answer) -> bool:
    return answer.error.state.startswith(LIMITS) or TOO_COMPLEX in str(answer.error)


def weaker(one: str, other: str) -> str:
    return max(one, other, key=[SAME, DIGITS, WRONG].index)


def tags_outcome(theirs: Answer, ours: Answer) -> str:
    """How many rows were written is an answer, too."""
    counts = [[tag for tag in answer.tags if tag.startswith(WRITES)] for answer in (theirs, ours)]
    return SAME if counts[0] == counts[1] else WRONG


def rows_outcome(sql: str, theirs: Answer, ours: Answer) -> str:
    wanted, given = rows(theirs), rows(ours)
    if len(wanted) != len(given) or any(len(one) != len(other) for one, other in zip(wanted, given)):
        return WRONG
    order = ordering(sql)
    oids = theirs.oids or [0] * (len(wanted[0]) if wanted else 0)
    if order is None:
        return multiset_outcome(wanted, given, oids)
    outcome = sequence_outcome(wanted, given, oids)
    if outcome != WRONG or multiset_outcome(wanted, given, oids) == WRONG:
        return outcome
    # The same rows in another order: right if those that changed places are equal by what they are ordered by.
    places = [place_of(item, theirs.names) for item in order]
    if None in places or any(place >= len(oids) for place in places):
        return WRONG
    keys = [[[row[place] for place in places] for row in side] for side in (wanted, given)]
    return DIGITS if sequence_outcome(*keys, [oids[place] for place in places]) != WRONG else WRONG


def rows(answer: Answer) -> list[list[str | None]]:
    """A COPY's lines are rows of one column."""
    return answer.rows + [[line] for line in answer.copied.decode(errors="replace").splitlines()]


def sequence_outcome(wanted: list[list], given: list[list], oids: list[int]) -> str:
    outcome = SAME
    for one, other in zip(wanted, given):
        for a, b, oid in zip(one, other, oids):
            if a != b:
                if not is_close(a, b, oid):
                    return WRONG
                outcome = DIGITS
    return outcome


def multiset_outcome(wanted: list[list], given: list[list], oids: list[int]) -> str:
    if sorted(map(repr, wanted)) == sorted(map(repr, given)):
        return SAME

    def by_value(row: list) -> list:
        return [(value is not None, sortable(value, oid)) for value, oid in zip(row, oids)]

    return sequence_outcome(sorted(wanted, key=by_value), sorted(given, key=by_value), oids)


def sortable(value: str | None, oid: int) -> tuple[float, str]:
    """Close values are neighbours in this order."""
    if value is None:
        return 0.0, ""
    if oid in (FLOAT4, FLOAT8, NUMERIC):
        try:
            number = float(value)
            return (math.inf, "NaN") if math.isnan(number) else (number, "")
        except ValueError:
            return 0.0, value
    return 0.0, canonical(value, oid)


def canonical(value: str, oid: int) -> str:
    if oid == CHAR:
        return value.rstrip(" ")
    if oid in (JSON, JSONB):
        try:
            return json.dumps(json.loads(value), sort_keys=True)
        except ValueError:
            return value
    return value


def is_close(one: str | None, other: str | None, oid: int) -> bool:
    """Do two different texts say the same value but for digits or form?"""
    if one is None or other is None:
        return False
    if oid in ARRAYS:
        parts, others = ARRAY_PARTS.split(one), ARRAY_PARTS.split(other)
        pairs = zip(parts, others)
        return len(parts) == len(others) and all(a == b or is_close(a, b, ARRAYS[oid]) for a, b in pairs)
    try:
        if oid in FLOAT_TOLERANCES:
            a, b = float(one), float(other)
            return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=FLOAT_TOLERANCES[oid])
        if oid == NUMERIC:
            return is_same_number(decimal.Decimal(one), decimal.Decimal(other))
        if oid == JSONB:
            return by_value(one) == by_value(other)
    except (ValueError, decimal.InvalidOperation):
        return False
    return canonical(one, oid) == canonical(other, oid)


def by_value(document: str) -> object:
    """As jsonb compares: `[1]` and `[1.0]` are equal."""
    return json.loads(document, parse_float=decimal.Decimal, parse_int=decimal.Decimal)


def is_same_number(one: decimal.Decimal, other: decimal.Decimal) -> bool:
    """Equal, or one is the other, or what that was rounded of, rounded to fewer digits."""
    if not (one.is_finite() and other.is_finite()):
        return str(one) == str(other)
    if one == other:
        return True
    coarse, fine = sorted((one, other), key=lambda number: -number.as_tuple().exponent)
    if coarse.as_tuple().exponent == fine.as_tuple().exponent or coarse == 0:
        return False
    with decimal.localcontext(decimal.Context(prec=2000)):
        unit = decimal.Decimal((0, (1,), coarse.as_tuple().exponent))
        return abs(fine - coarse) * 2 <= unit


def ordering(sql: str) -> list[list[Token]] | None:
    """The items of the ORDER BY of the statement itself; `None` if it has none."""
    items: list[list[Token]] | None = None
    depth, before = 0, ""
    for token in tokens(bare(sql)):
        if token.kind == OTHER and token.text in "()[]":
            depth += 1 if token.text in "([" else -1
        word = token.text.upper() if token.kind == WORD and depth == 0 else ""
        if word == "BY" and before == "ORDER":
            items = [[]]
        elif items is not None and word in ("LIMIT", "OFFSET", "FETCH", "FOR"):
            break
        elif items is not None and token.kind == OTHER and token.text == "," and depth == 0:
            items.append([])
        elif items is not None and token.kind != SPACE:
            items[-1].append(token)
        if token.kind != SPACE:
            before = word
    return items


def place_of(item: list[Token], names: list[str]) -> int | None:
    """Which column of the answer an item of ORDER BY is, if it is plainly one."""
    words = [token.text for token in item]
    end = next((idx for idx, word in enumerate(words) if word.upper() in ("ASC", "DESC", "NULLS", "USING")), None)
    words = words[:end]
    if len(words) == 3 and words[1] == ".":
        words = words[2:]
    if len(words) != 1:
        return None
    if words[0].isdigit():
        return int(words[0]) - 1
    name = words[0].strip('"') if words[0].startswith('"') else words[0].lower()
    return names.index(name) if names.count(name) == 1 else None
