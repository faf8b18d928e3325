"""PostgreSQL's own regress files, statement by statement, on a real PostgreSQL and on Tarn.

    run.py --tarn PATH [--set core|more|all|quick] [--update] [--strict] [--json FILE] [--dump FILE] [NAME…]

The files come from Debian's source package (source.py); each is run on a fresh database and a fresh server. What Tarn
answers otherwise than PostgreSQL (WRONG), or takes though PostgreSQL refuses it (ACCEPTED), must be in ledger.txt: a
new difference fails and is printed with both answers; `--update` writes it down. Exits with 1 if something failed.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "hostile")]

import ledger  # noqa: E402
from both import File  # noqa: E402
from compare import ACCEPTED, WRONG  # noqa: E402
from ledger import Section  # noqa: E402
from reference import Postgres  # noqa: E402
from report import as_json, compared, dump, print_table, say, say_held, share_same  # noqa: E402
from source import MAJOR, Missing, regress_files  # noqa: E402

CORE = """
boolean char name varchar text int2 int4 int8 oid float4 float8 numeric numerology uuid strings
date time timetz timestamp timestamptz interval horology
arrays json jsonb rowtypes comments expressions case
select select_distinct select_distinct_on select_having select_implicit select_into subselect union join aggregates
groupingsets window with tsrf limit random
insert insert_conflict update delete returning copy copy2 truncate
portals prepare transactions sequence identity generated
""".split()
MORE = """
numeric_big bit inet money enum domain xid txid regex unicode jsonpath jsonb_jsonpath rangefuncs rangetypes polymorphism
create_table create_table_like create_view create_schema create_index alter_table constraints foreign_key inherit temp
namespace matview merge updatable_views rules triggers privileges portals_p2 plancache misc_functions copydml copyselect
tablesample guc errors equivclass incremental_sort collate drop_if_exists vacuum lock advisory_lock async
""".split()
QUICK = "boolean int2 int4 int8 text uuid case select select_having union delete limit date".split()
SETS = {"core": CORE, "more": MORE, "all": CORE + MORE, "quick": QUICK}


def parsed() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--tarn", required=True, type=pathlib.Path, help="the server's binary")
    arguments.add_argument("--set", choices=SETS, default="core", help="which files, unless they are named")
    arguments.add_argument(
        "--update", action="store_true", help="write the ledger of these files; its reasons are kept"
    )
    arguments.add_argument("--strict", action="store_true", help="fail, too, if the ledger says more than there is")
    arguments.add_argument("--json", type=pathlib.Path, help="write the counts to this file")
    arguments.add_argument(
        "--dump", type=pathlib.Path, help="write each statement that is not the same, as a line of JSON"
    )
    arguments.add_argument(
        "--skip-if-missing", action="store_true", help="pass if PostgreSQL or its files cannot be had"
    )
    arguments.add_argument("names", nargs="*", metavar="NAME", help="regress files, as `int4`")
    return arguments.parse_args()


def main() -> int:
    given = parsed()
    if not os.access(given.tarn, os.X_OK):
        say(f"{given.tarn} is no program: --tarn is the server's binary")
        return 2
    try:
        postgres = Postgres()
    except subprocess.CalledProcessError:
        return missing("PostgreSQL does not start (scripts/setup --tests installs it)", given.skip_if_missing)
    try:
        version = postgres.version()
        if version.split(".")[0] != str(MAJOR):
            raise Missing(f"the ledger is of PostgreSQL {MAJOR}, this is {version} (TARN_POSTGRES_BIN chooses another)")
        regress = regress_files(version)
        say(f"regress: PostgreSQL {version}, files of {regress.name}, {' '.join(given.names) or given.set}")
        unknown = [name for name in given.names if not (regress / "sql" / f"{name}.sql").is_file()]
        if unknown:
            say(f"no such regress file: {' '.join(unknown)}")
            return 2
        postgres.prepare(regress)
        return judged(given, postgres, version)
    except Missing as error:
        return missing(str(error), given.skip_if_missing)
    finally:
        postgres.stop()


def missing(why: str, is_skipped: bool) -> int:
    say(f"regress: {'skipped' if is_skipped else 'cannot run'}: {why}")
    return 0 if is_skipped else 1


def judged(given: argparse.Namespace, postgres: Postgres, version: str) -> int:
    sections, files, failed = ledger.read(), [], []
    for name in given.names or SETS[given.set]:
        file = File(name)
        file.run(given.tarn.absolute(), postgres)
        files.append(file)
        held = ledger.hold(file.steps, sections.get(name, Section()))
        ledger.settle(file.steps, held.section if given.update else sections.get(name, Section()))
        passed = not file.broken
        if given.update:
            sections[name] = held.section
        else:
            passed = say_held(file, held, given.strict)
        failed += [] if passed else [name]
        counts = file.counts()
        say(
            f"{name}: {'passed' if passed else 'FAILED'} in {file.seconds:.1f} s, {compared(counts)} compared, "
            f"{share_same(counts):.0%} as PostgreSQL, {counts[WRONG]} wrong, {counts[ACCEPTED]} accepted"
        )
    print_table(files)
    if given.update:
        ledger.write(sections)
        say(f"wrote {ledger.PATH.name}")
    if given.json:
        given.json.write_text(json.dumps(as_json(files, version), indent=2) + "\n")
    if given.dump:
        dump(given.dump, files)
    say(f"{len(files) - len(failed)} files passed, {len(failed)} failed{': ' + ' '.join(failed) if failed else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("stopped")
        sys.exit(130)
