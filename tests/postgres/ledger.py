"""The accepted differences: what is in `ledger.txt`, and how a run is held against it.

    reason NAME: what it is
    [file] same N                             so many of the file's statements, or more, are answered as by PostgreSQL
    WRONG|ACCEPTED  digest  line  reason      a statement that is known to differ

A statement is known by its file and by the digest of its text without comments and surplus white space; the n-th of
the same text has `#n`. The line is there for readers. A reason that ends in `?` is of answers that SQL leaves open:
they may differ in one run and not in the next.
"""

import collections
import dataclasses
import pathlib
import re

from compare import ACCEPTED, DIGITS, OPEN, SAME, SAME_STATE, WRONG
from pair import Step
from reasons import REASONS, UNCLASSIFIED, reason_of
from script import digest

PATH = pathlib.Path(__file__).with_name("ledger.txt")
LEDGERED = (WRONG, ACCEPTED)
AGREED = (SAME, SAME_STATE, DIGITS)
ENTRY = re.compile(rf"({'|'.join(LEDGERED)})\s+([0-9a-f]{{12}}(?:#\d+)?)\s+(\d+)\s+(\S+)")
SECTION = re.compile(r"\[(\w+)\] same (\d+)")

HEADER = """\
# Where Tarn's answers differ from PostgreSQL 15's, statement by statement of its regress files. Written by
# `run.py --update`, which keeps the reasons that are here; README.md says what the columns are.
"""


@dataclasses.dataclass
class Entry:
    outcome: str
    line: int
    reason: str

    @property
    def may_vanish(self) -> bool:
        return self.reason.endswith("?")


@dataclasses.dataclass
class Section:
    """One file's accepted differences, by the statements' digests."""

    n_same: int = 0
    entries: dict[str, Entry] = dataclasses.field(default_factory=dict)


def read() -> dict[str, Section]:
    sections: dict[str, Section] = {}
    section = Section()
    for nth, line in enumerate(PATH.read_text().splitlines() if PATH.exists() else [], 1):
        if not line.strip() or line.startswith(("#", "reason ")):
            continue
        if found := SECTION.fullmatch(line):
            section = sections.setdefault(found.group(1), Section(int(found.group(2))))
        elif found := ENTRY.fullmatch(line):
            outcome, known_by, at, reason = found.groups()
            # One that is no reason any more is looked for anew.
            section.entries[known_by] = Entry(outcome, int(at), reason if reason in REASONS else UNCLASSIFIED)
        else:
            raise SystemExit(f"{PATH.name}:{nth}: not an entry: {line}")
    return sections


def write(sections: dict[str, Section]) -> None:
    used = collections.Counter(entry.reason for section in sections.values() for entry in section.entries.values())
    lines = [HEADER]
    lines += [f"reason {name}: {REASONS[name]}" for name in REASONS if used[name]]
    for name, section in sorted(sections.items()):
        lines.append(f"\n[{name}] same {section.n_same}")
        for known_by, entry in sorted(section.entries.items(), key=lambda item: (item[1].line, item[0])):
            lines.append(f"{entry.outcome:<8}  {known_by:<15}  {entry.line:>5}  {entry.reason}")
    PATH.write_text("\n".join(lines) + "\n")


def known_by(steps: list[Step]) -> list[str]:
    """What each statement of a file is known by."""
    seen: collections.Counter[str] = collections.Counter()
    names = []
    for step in steps:
        name = digest(step.text.sql)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return names


@dataclasses.dataclass
class Held:
    """A file's steps held against its section."""

    new: list[Step]
    # Of the section: what does not differ any more, or not in that way.
    gone: dict[str, Entry]
    n_same: int
    n_same_before: int
    section: Section


def settle(steps: list[Step], section: Section) -> None:
    """What a section calls open is no difference: SQL leaves it open, and neither answer is wrong."""
    for name, step in zip(known_by(steps), steps):
        entry = section.entries.get(name)
        if entry and entry.outcome == step.verdict.outcome and entry.may_vanish:
            step.verdict.outcome = OPEN


def hold(steps: list[Step], section: Section) -> Held:
    """`section` of the result is what the ledger would say after this run."""
    differing: dict[str, Entry] = {}
    new: list[Step] = []
    for name, step in zip(known_by(steps), steps):
        if step.verdict.outcome not in LEDGERED:
            continue
        entry = section.entries.get(name)
        if entry is None or entry.outcome != step.verdict.outcome:
            new.append(step)
            entry = Entry(step.verdict.outcome, step.text.line, reason_of(step))
        elif entry.reason == UNCLASSIFIED:
            entry = dataclasses.replace(entry, reason=reason_of(step))
        differing[name] = dataclasses.replace(entry, line=step.text.line)
    kept = {name: entry for name, entry in section.entries.items() if entry.may_vanish and name not in differing}
    gone = {name: entry for name, entry in section.entries.items() if name not in differing and name not in kept}
    n_same = sum(step.verdict.outcome in AGREED for step in steps)
    return Held(new, gone, n_same, section.n_same, Section(n_same, differing | kept))
