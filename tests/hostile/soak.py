"""Everything of this folder in turn, each time with a fresh seed, until the time is over.

    soak.py --tarn PATH [--minutes N]

Exits with 1 if anything was found; what was found is printed with the command that repeats it.
"""

import argparse
import pathlib
import random
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent

# Program, its arguments beside the seed, and its share of a turn in seconds.
TURN = [
    ("run.py", ["--part", "statements"], 90),
    ("run.py", ["--part", "functions"], 90),
    ("run.py", ["--part", "messages", "http"], 40),
    ("run.py", ["--part", "copy", "settings"], 40),
    ("run.py", ["--part", "files"], 60),
    ("run.py", ["--part", "load"], 60),
    ("powercut.py", [], 90),
    ("differential.py", [], 180),
]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tarn", required=True, type=pathlib.Path)
    arguments.add_argument("--minutes", type=float, default=60.0)
    given = arguments.parse_args()
    ends, failed, n_runs = time.monotonic() + given.minutes * 60, [], 0
    while time.monotonic() < ends:
        for program, options, seconds in TURN:
            left = ends - time.monotonic()
            if left <= 0:
                break
            seed = random.SystemRandom().randrange(1 << 32)
            command = [sys.executable, str(HERE / program), "--tarn", str(given.tarn.absolute()), *options]
            command += ["--seconds", str(int(max(5, min(seconds, left)))), "--seed", str(seed)]
            print(f"── {' '.join(command[1:])}", flush=True)
            n_runs += 1
            if subprocess.run(command).returncode != 0:
                failed.append(" ".join(command[1:]))
    for command in failed:
        print(f"FAILED: {command}")
    print(f"{n_runs - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
