"""Hostile clients, files and statements against the shipped server: it stays alive, tells the truth, and serves
everybody else.

    run.py --tarn PATH [--quick] [--seconds N] [--seed S] [--part NAME…] [--only N]

Each part has a server of its own in a memory cgroup, and a second client that reads by key all the time. What it prints
as `#N` is repeated
by `--part NAME --seed S --only N`. Exits with 1 if anything was found. README.md says what each part does.
"""

import argparse
import pathlib
import random
import sys
import time

from parts.copy_in import CopyIn
from parts.files import Files
from parts.functions import Functions
from parts.http import Http
from parts.load import Load
from parts.messages import Messages
from parts.settings import ServerSettings
from parts.statements import Statements
from stage import MEBIBYTE, Part, Report, Settings, play

PARTS: dict[str, type[Part]] = {
    part.name: part for part in (Statements, Functions, Messages, Http, CopyIn, Files, ServerSettings, Load)
}
QUICK_SECONDS = 10.0
SECONDS = 60.0


def say(text: str) -> None:
    print(text, flush=True)


def table(reports: list[Report]) -> list[str]:
    head = f"{'part':<12} {'attacks':>7} {'found':>6} {'seconds':>8} {'restarts':>8} {'peak MB':>8} {'P99 before':>11} {'beside':>9} {'ratio':>6}"
    lines = [head, "-" * len(head)]
    for report in reports:
        ratio = report.beside_ms / report.baseline_ms if report.baseline_ms else float("nan")
        lines.append(
            f"{report.part:<12} {report.n_attacks:>7} {len(report.findings):>6} {report.seconds:>8.1f} {report.restarts:>8} "
            f"{report.peak_rss_bytes / MEBIBYTE:>8.0f} {report.baseline_ms:>8.1f} ms {report.beside_ms:>6.1f} ms {ratio:>6.1f}"
        )
    return lines


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tarn", required=True, type=pathlib.Path, help="the server's binary")
    arguments.add_argument(
        "--seconds", type=float, help=f"of each part ({SECONDS:.0f}; with --quick {QUICK_SECONDS:.0f})"
    )
    arguments.add_argument("--seed", type=int, help="of everything random (a new one each time)")
    arguments.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), help="all unless named")
    arguments.add_argument("--only", type=int, help="repeat this attack of the part alone")
    arguments.add_argument(
        "--quick", action="store_true", help="the form of CI: some two minutes in all, smaller sizes"
    )
    arguments.add_argument("--memory", type=int, default=3072, help="MiB that a server may take")
    arguments.add_argument("--keep", action="store_true", help="leave the servers' folders")
    arguments.add_argument("--verbose", action="store_true", help="print each attack as it begins")
    given = arguments.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1 << 32)
    settings = Settings(
        tarn=given.tarn.absolute(),
        seed=seed,
        seconds=given.seconds or (QUICK_SECONDS if given.quick else SECONDS),
        quick=given.quick,
        memory_bytes=given.memory * MEBIBYTE,
        only=given.only,
        keep=given.keep,
        verbose=given.verbose,
    )
    say(f"hostile: seed {seed}, {settings.seconds:.0f} s a part, at most {given.memory} MiB a server")
    reports, started = [], time.monotonic()
    for name in given.part:
        say(f"{name}: {' '.join((PARTS[name].__doc__ or '').split())}")
        reports.append(play(PARTS[name](), settings, say))
    say("")
    for line in table(reports):
        say(line)
    for report in reports:
        for note, count in sorted(report.notes.items(), key=lambda item: -item[1])[:20]:
            say(f"note, {report.part}, {count} times: {note}")
    failed = [report for report in reports if report.findings]
    for report in failed:
        say(
            f"\n{report.part}: repeat with --part {report.part} --seed {seed}{' --quick' if given.quick else ''} --only N"
        )
        for finding in report.findings:
            say(f"  #{finding.number} {finding.name}: {finding.text}")
    say(
        f"\n{len(reports) - len(failed)} passed, {len(failed)} failed, in {time.monotonic() - started:.0f} s (seed {seed})"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
