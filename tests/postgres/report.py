"""What a run says: differences in full, a table by file, counts as JSON."""

import collections
import json
import pathlib

from both import File
from compare import ACCEPTED, DIGITS, MISSING, NOT_COMPARED, OPEN, OTHER_STATE, OUTCOMES, SAME, SAME_STATE, WRONG
from ledger import Held
from pair import Step
from reasons import shown

# Longer answers are cut where they are printed.
SHOWN_LINES, SHOWN_COLUMNS, SHOWN_STATEMENT = 12, 200, 2000
DUMPED_CHARACTERS = 2000


def say(text: str = "") -> None:
    print(text, flush=True)


def tell(name: str, step: Step) -> None:
    say(f"{step.verdict.outcome} {name}.sql:{step.text.line}: {step.text.sql[:SHOWN_STATEMENT]}")
    for who, answer in (("postgres", step.postgres), ("tarn", step.tarn)):
        lines = shown(answer).splitlines()
        more = [f"… {len(lines)} lines"] if len(lines) > SHOWN_LINES else []
        for line in lines[:SHOWN_LINES] + more:
            say(f"    {who + ':':<9} {line[:SHOWN_COLUMNS]}")


def compared(counts: collections.Counter) -> int:
    return sum(counts.values()) - counts[NOT_COMPARED]


def share_same(counts: collections.Counter) -> float:
    return (counts[SAME] + counts[SAME_STATE] + counts[DIGITS]) / max(1, compared(counts))


def print_table(files: list[File]) -> None:
    total = collections.Counter()
    say(f"{'file':<20}" + "".join(f"{outcome:>13}" for outcome in OUTCOMES) + f"{'as PostgreSQL':>15}{'seconds':>9}")
    for file in files:
        total += file.counts()
        print_line(file.name, file.counts(), file.seconds)
    print_line("all", total, sum(file.seconds for file in files))


def print_line(name: str, counts: collections.Counter, seconds: float) -> None:
    cells = "".join(f"{counts[outcome]:>13}" for outcome in OUTCOMES)
    say(f"{name:<20}{cells}{share_same(counts):>14.1%}{seconds:>10.1f}")


def as_json(files: list[File], version: str) -> dict:
    steps = [step for file in files for step in file.steps]
    total = collections.Counter(step.verdict.outcome for step in steps)
    why_not = collections.Counter(step.verdict.about for step in steps if step.verdict.outcome == NOT_COMPARED)
    return {
        "postgres": version,
        "regress_statements": len(steps),
        "regress_compared": compared(total),
        "regress_same": round(share_same(total), 4),
        "regress_wrong": total[WRONG] + total[ACCEPTED],
        "regress_open": total[OPEN],
        "regress_missing": total[MISSING],
        "regress_other_state": total[OTHER_STATE],
        "outcomes": {outcome: total[outcome] for outcome in OUTCOMES},
        "names_differ": sum(step.verdict.names_differ for step in steps),
        "types_differ": sum(step.verdict.types_differ for step in steps),
        "not_compared": dict(sorted(why_not.items())),
        "files": {file.name: {outcome: file.counts()[outcome] for outcome in OUTCOMES} for file in files},
        "broken": {file.name: file.broken for file in files if file.broken},
    }


def say_held(file: File, held: Held, is_strict: bool) -> bool:
    """Says what is new or gone; did the file pass?"""
    for step in held.new:
        tell(file.name, step)
    for known_by, entry in held.gone.items():
        where = f"[{file.name}] {known_by} line {entry.line} {entry.reason}"
        say(f"no longer {entry.outcome}, remove it from the ledger: {where}")
    for text in file.broken:
        say(f"BROKEN {file.name}: {text}")
    fewer, more = held.n_same < held.n_same_before, held.n_same > held.n_same_before
    if fewer or (more and is_strict):
        say(f"{file.name}: {held.n_same} answers are PostgreSQL's, the ledger says {held.n_same_before}")
    is_outdated = more or bool(held.gone)
    return not (held.new or file.broken or fewer or (is_strict and is_outdated))


def dump(path: pathlib.Path, files: list[File]) -> None:
    """Every statement that is not the same, with both answers: to look for causes."""
    with path.open("w", errors="surrogateescape") as out:
        for file in files:
            for step in file.steps:
                if step.verdict.outcome not in (SAME, SAME_STATE):
                    what = {
                        "file": file.name,
                        "line": step.text.line,
                        "outcome": step.verdict.outcome,
                        "about": step.verdict.about,
                        "sql": step.text.sql,
                        "postgres": shown(step.postgres)[:DUMPED_CHARACTERS],
                        "tarn": shown(step.tarn)[:DUMPED_CHARACTERS],
                    }
                    out.write(json.dumps(what) + "\n")
