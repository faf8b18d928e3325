"""One statement on both, and what the two answers say of each other."""

import dataclasses

from compare import ACCEPTED, DIGITS, MISSING, NOT_COMPARED, OTHER_STATE, SAME, SAME_STATE, WRONG, judge
from wire import Answer, Wire

TYPES_DIFFER = "TYPE"
REFUSED = "refused"
OUTCOMES = (SAME, DIGITS, SAME_STATE, OTHER_STATE, REFUSED, NOT_COMPARED, WRONG, ACCEPTED, TYPES_DIFFER)
FAULTS = (WRONG, ACCEPTED, TYPES_DIFFER)
# What names a thing that is not there, or a limit that the pages name.
NOT_THERE = ("0A", "42", "54")
# What the rows of a statement may raise; which of them are computed is left to a planner.
OF_VALUES = ("22", "21")
# It took too long.
CANCELLED = "57014"
# What the wire calls `unknown` and `text` is one type to everybody.
TEXTS = {25, 705, 1043}
# And of arrays of them.
ARRAYS_OF_TEXTS = {1009: 1015}


@dataclasses.dataclass
class Compared:
    sql: str
    outcome: str
    postgres: Answer
    tarn: Answer

    @property
    def is_fault(self) -> bool:
        return self.outcome in FAULTS

    def shown(self) -> str:
        return f"{self.outcome} {self.sql}\n    postgres: {shown(self.postgres)}\n    tarn:     {shown(self.tarn)}"


class Sides:
    def __init__(self, postgres: Wire, tarn: Wire):
        self.postgres, self.tarn = postgres, tarn

    def both(self, sql: str) -> None:
        """What has to succeed on both."""
        self.postgres.must(sql)
        self.tarn.must(sql)

    def compare(self, sql: str, is_of_rows: bool = False) -> Compared:
        """`is_of_rows`: it computes something for each of many rows."""
        theirs, ours = self.postgres.ask(sql), self.tarn.ask(sql)
        if theirs.error and theirs.error.state == CANCELLED:
            return Compared(sql, NOT_COMPARED, theirs, ours)
        verdict = judge(sql, theirs, ours)
        outcome = verdict.outcome
        if outcome == MISSING:
            # An error that PostgreSQL does not have is a wrong answer, unless it says that something is not there.
            is_refused = ours.error.state.startswith(NOT_THERE)
            of_rows = is_of_rows and ours.error.state.startswith(OF_VALUES)
            outcome = REFUSED if is_refused else NOT_COMPARED if of_rows else WRONG
        elif outcome == ACCEPTED and is_of_rows and theirs.error.state.startswith(OF_VALUES):
            outcome = NOT_COMPARED
        elif outcome in (SAME, DIGITS) and types_of(theirs) != types_of(ours):
            outcome = TYPES_DIFFER
        return Compared(sql, outcome, theirs, ours)


def types_of(answer: Answer) -> list[int]:
    return [ARRAYS_OF_TEXTS.get(oid, oid) for oid in answer.oids if oid not in TEXTS]


def shown(answer: Answer) -> str:
    if answer.error:
        return f"ERROR {answer.error}"
    rows = ["|".join("NULL" if cell is None else cell for cell in row) for row in answer.rows[:8]]
    more = f" … {len(answer.rows)} rows" if len(answer.rows) > 8 else ""
    return f"{' / '.join(rows)}{more} ({','.join(map(str, answer.oids))})"
