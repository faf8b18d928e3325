"""A differential fuzzer: random schemas, statements, deliveries, access paths and kills; PostgreSQL must give the same
answers.

    differential.py --tarn PATH [--seconds N] [--seed S] [--only N] [--rounds N] [--postgres URL] [--with-known] [--shrink N]

A round is one script on one pair of tables' sets; round N of seed S is always the same, `--seed S --only N` repeats it.
Without `--postgres` a
server of its own is started by scripts/services/postgres and stopped at the end. Exits with 1 if the two differed
anywhere.
"""

import argparse
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from fuzz.shrink import shorter
from fuzz.sides import REFUSED, Counts, Difference, Pair, Postgres, Stop, Tarn
from fuzz.steps import Script, Step
from server import DidNotStart

from fuzz import steps as fuzz_steps

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVICE = ROOT / "scripts" / "services" / "postgres"
# More differences of one round say little more.
MAX_OF_A_ROUND = 5
# The share of statements that may be refused: more, and what is compared is not what was meant.
MAX_REFUSED = 0.25


def say(text: str) -> None:
    print(text, flush=True)


def run(
    tarn_path: pathlib.Path, postgres: Postgres, script: Script, steps: list[Step], counts: Counts, is_strict: bool
) -> list[tuple[int, str]]:
    """The steps that differed, by their place, and how."""
    postgres.empty()
    found: list[tuple[int, str]] = []
    tarn = Tarn(tarn_path, script.flags)
    try:
        pair = Pair(tarn, postgres, script, counts, is_strict)
        for idx, step in enumerate(steps):
            try:
                pair.run(step)
            except Difference as difference:
                found.append((idx, str(difference)))
                if difference.is_lasting or len(found) >= MAX_OF_A_ROUND:
                    break
            except Stop:
                break
        panics = tarn.panics + tarn.server.panics()
        if panics:
            found.append((len(steps) - 1, f"panic: {panics[0][-300:]}"))
    except DidNotStart as error:
        found.append((len(steps) - 1, f"did not start: {error}"))
    finally:
        tarn.close()
    return found


def tell(
    tarn_path: pathlib.Path,
    postgres: Postgres,
    script: Script,
    found: list[tuple[int, str]],
    about: str,
    shrink_s: float,
    is_strict: bool,
) -> None:
    for nth, (idx, text) in enumerate(found):
        step = script.steps[idx]
        say(f"DIFFERENCE {about}, step {idx}: {step.text()[:2000]}{text}")
        if nth == 0 and shrink_s > 0:

            def shows_it(steps: list[Step]) -> bool:
                try:
                    again = run(tarn_path, postgres, script, steps, Counts(), is_strict)
                except Exception:  # a shorter script may be no script at all: it does not show it
                    return False
                return any(place == len(steps) - 1 for place, _ in again)

            short = shorter(script.steps[: idx + 1], shows_it, shrink_s)
            say(f"  shown by {len(short)} steps, {' '.join(script.flags)}:")
            for line in short:
                say("    " + line.text().replace("\n", "\n    "))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tarn", required=True, type=pathlib.Path, help="the server's binary")
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--seed", type=int, help="a new one each time")
    arguments.add_argument("--only", type=int, help="this round alone")
    arguments.add_argument("--rounds", type=int, help="no more than these, if there is time for more")
    arguments.add_argument("--postgres", help="URL of a database that may be emptied")
    arguments.add_argument("--with-known", action="store_true", help="also what is known to differ (fuzz/values.py)")
    arguments.add_argument(
        "--shrink", type=float, default=30.0, help="seconds for making a script shorter, for each round; 0: not at all"
    )
    arguments.add_argument(
        "--print", action="store_true", help="print the round's script instead of running it (with --only)"
    )
    given = arguments.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 32)
    if given.print:
        for step in fuzz_steps.script(random.Random(f"{seed}/{given.only or 0}"), given.with_known).steps:
            print(step.text())
        return
    say(
        f"differential: seed {seed}, {given.seconds:.0f} s{', with what is known to differ' if given.with_known else ''}"
    )
    folder = None
    url = given.postgres
    if url is None:
        folder = tempfile.mkdtemp(prefix="tarn-fuzz-postgres-")
        # PostgreSQL does not run as root, and its user has to reach the folder.
        pathlib.Path(folder).chmod(0o755)
        url = subprocess.run([SERVICE, "start", folder], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    counts, failed, n_rounds = Counts(), [], 0
    try:
        postgres, ends = Postgres(url), time.monotonic() + given.seconds
        while True:
            round_ = given.only if given.only is not None else n_rounds
            script = fuzz_steps.script(random.Random(f"{seed}/{round_}"), given.with_known)
            found = run(given.tarn.absolute(), postgres, script, script.steps, counts, given.with_known)
            n_rounds += 1
            if found:
                failed.append(round_)
                tell(
                    given.tarn.absolute(),
                    postgres,
                    script,
                    found,
                    f"seed {seed} round {round_}",
                    given.shrink,
                    given.with_known,
                )
            if given.only is not None or n_rounds == given.rounds or time.monotonic() > ends:
                break
    finally:
        if folder is not None:
            subprocess.run([SERVICE, "stop", folder], check=False)
            subprocess.run(["rm", "-rf", folder], check=False)
    say(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    n_statements = counts["query"] + counts["write"]
    if not given.with_known and counts[REFUSED] > MAX_REFUSED * n_statements:
        say(f"FAILED: {counts[REFUSED]} of {n_statements} statements were refused: too many to say anything")
        failed.append(n_rounds)
    for round_ in failed:
        say(f"repeat: --seed {seed} --only {round_}{' --with-known' if given.with_known else ''}")
    say(f"{max(0, n_rounds - len(failed))} passed, {len(failed)} failed (rounds, seed {seed})")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
