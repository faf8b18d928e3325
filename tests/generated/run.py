"""Random expressions and queries over all types, on PostgreSQL and on Tarn: the same rows, types and errors?

    run.py --tarn PATH [--count N] [--seed S] [--only K] [--expressions | --queries] [--with-known] [--json FILE]

Statement K of seed S is always the same as long as PostgreSQL, and what Tarn has, are. What differs is printed as short as it gets; exits with
1 if anything did. A server and a PostgreSQL of its own are started, and stopped at the end.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "hostile"), str(HERE.parent / "postgres")]

from expressions import Expressions  # noqa: E402
from queries import Queries, make_tables  # noqa: E402
from shorten import shorter, shorter_query  # noqa: E402
from reference import Postgres  # noqa: E402
from report import say  # noqa: E402
from server import DidNotStart, Options, Server  # noqa: E402
from sides import FAULTS, NOT_COMPARED, OUTCOMES, REFUSED, Compared, Sides  # noqa: E402
from signatures import Signatures  # noqa: E402
from wire import Hung, Left, Wire  # noqa: E402

SETTINGS = {"timezone": "America/Los_Angeles", "datestyle": "ISO, MDY", "intervalstyle": "postgres"}
PATIENCE_S = 60.0
MEMORY_BYTES = 2 << 30
# What PostgreSQL does not answer in this time is not compared: joins of eight tables that it knows nothing of.
TIMEOUT = "20s"
FLAGS = ("--background", "false", "--statement-timeout-ms", TIMEOUT)
MAX_DEPTH = 3
# Statements beside the same tables.
OF_A_SCENE = 250
# Of what differs by one signature, the first is told in full.
MAX_TOLD = 40


def parsed() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tarn", required=True, type=pathlib.Path, help="the server's binary")
    arguments.add_argument("--count", type=int, default=2000, help="statements, half of each kind (2000)")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--only", type=int, help="this statement alone, and print it")
    kind = arguments.add_mutually_exclusive_group()
    kind.add_argument("--expressions", action="store_true", help="only expressions of values")
    kind.add_argument("--queries", action="store_true", help="only queries of tables")
    arguments.add_argument("--with-known", action="store_true", help="also what is in known.txt")
    arguments.add_argument("--json", type=pathlib.Path, help="write the counts to this file")
    arguments.add_argument("--skip-if-missing", action="store_true", help="pass if there is no PostgreSQL here")
    return arguments.parse_args()


class Run:
    def __init__(self, given: argparse.Namespace, sides: Sides, signatures: Signatures):
        self.given, self.sides, self.signatures = given, sides, signatures
        self.counts: collections.Counter[str] = collections.Counter()
        self.faults: dict[str, list[str]] = {}
        self.refusals: dict[str, list[str]] = collections.defaultdict(list)

    def all(self) -> None:
        started = told = time.monotonic()
        numbers = range(self.given.count) if self.given.only is None else [self.given.only]
        for number in numbers:
            is_query = self.given.queries or (not self.given.expressions and number // OF_A_SCENE % 2 == 1)
            if is_query and (number % OF_A_SCENE == 0 or self.given.only is not None):
                make_tables(random.Random(f"{self.given.seed} {number // OF_A_SCENE} tables"), self.sides)
            self.one(number, is_query)
            if time.monotonic() - told > 15:
                told = time.monotonic()
                rate = (number + 1) / (told - started)
                say(f"generated: {number + 1} of {self.given.count}, {rate:.0f} a second, {self.n_faults()} differ")

    def one(self, number: int, is_query: bool) -> None:
        rng = random.Random(f"{self.given.seed} {number}")
        if is_query:
            tree = None
            query = Queries(rng, self.signatures).query()
            sql = query.sql()
        else:
            tree = Expressions(rng, self.signatures).any(rng.randint(1, MAX_DEPTH))
            sql = f"SELECT {tree.sql()}"
        compared = self.sides.compare(sql, is_of_rows=is_query)
        if self.given.only is not None:
            say(compared.shown())
        if compared.outcome == REFUSED:
            self.refusals[str(compared.tarn.error)[:100]].append(sql)
        outcome = compared.outcome
        if compared.is_fault:
            short, about = (
                shorter(self.sides, tree, compared) if tree is not None else shorter_query(self.sides, query, compared)
            )
            if short.is_fault:
                self.tell(number, about, short)
            else:
                outcome = short.outcome
        self.counts[outcome] += 1

    def tell(self, number: int, about: str, short: Compared) -> None:
        seen = self.faults.setdefault(about, [])
        seen.append(short.sql)
        if len(seen) == 1 and len(self.faults) <= MAX_TOLD:
            say(f"DIFFERENCE --seed {self.given.seed} --only {number}, {about}: {short.shown()}")

    def n_faults(self) -> int:
        return sum(self.counts[outcome] for outcome in FAULTS)

    def figures(self) -> dict:
        n_compared = max(1, sum(self.counts.values()) - self.counts[NOT_COMPARED])
        return {
            "seed": self.given.seed,
            "generated": sum(self.counts.values()),
            "generated_wrong": self.n_faults(),
            "generated_refused": round(self.counts[REFUSED] / n_compared, 5),
            "signatures": self.signatures.n_total,
            "signatures_missing": self.signatures.n_missing,
            "signatures_left_out": self.signatures.n_known,
            "outcomes": {outcome: self.counts[outcome] for outcome in OUTCOMES},
            "faults": {about: seen[:3] for about, seen in sorted(self.faults.items())},
            "refusals": {
                error: {"count": len(seen), "shortest": sorted(seen, key=len)[:3]}
                for error, seen in sorted(self.refusals.items(), key=lambda item: -len(item[1]))
            },
            "missing": self.signatures.missing,
        }


def main() -> int:
    given = parsed()
    if not os.access(given.tarn, os.X_OK):
        say(f"{given.tarn} is no program: --tarn is the server's binary")
        return 2
    try:
        reference = Postgres()
    except subprocess.CalledProcessError:
        say(f"generated: {'skipped' if given.skip_if_missing else 'cannot run'}: no PostgreSQL starts here")
        return 0 if given.skip_if_missing else 1
    try:
        with tempfile.TemporaryDirectory(prefix="tarn-generated-") as folder:
            return beside(given, pathlib.Path(folder), reference.port)
    finally:
        reference.stop()


def beside(given: argparse.Namespace, folder: pathlib.Path, postgres_port: int) -> int:
    server = Server(given.tarn.absolute(), folder, Options(FLAGS, memory_bytes=MEMORY_BYTES))
    run = None
    try:
        with (
            server,
            Wire(postgres_port, PATIENCE_S, database="postgres", settings=SETTINGS | {"statement_timeout": TIMEOUT}) as postgres,
            Wire(server.port, PATIENCE_S, settings=SETTINGS) as tarn,
        ):
            signatures = Signatures(postgres, tarn, given.with_known)
            say(
                f"generated: seed {given.seed}, {signatures.n_total} signatures, {signatures.n_missing} are not there, "
                f"{signatures.n_known} are left out (known.txt)"
            )
            run = Run(given, Sides(postgres, tarn), signatures)
            run.all()
            panics = server.panics()
    except (DidNotStart, Hung, Left) as error:
        say(f"generated: FAILED: {type(error).__name__}: {error}; {server.log()[-2000:]}")
        return 1
    figures = run.figures()
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    for outcome, count in figures["outcomes"].items():
        say(f"{outcome:<14}{count:>8}")
    for about, seen in sorted(run.faults.items(), key=lambda item: -len(item[1])):
        say(f"differs {len(seen):>5} times: {about}")
    for panic in panics:
        say(f"panic: {panic}")
    say(f"generated: {figures['generated']} statements, {figures['generated_wrong']} differ, {figures['generated_refused']:.2%} refused")
    return 1 if figures["generated_wrong"] or panics else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("stopped")
        sys.exit(130)
