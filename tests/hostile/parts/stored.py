"""A data folder whose content is known: how it is made, what it is asked, and the answers that are right.

Five tables: `plain` is delivered, compacted, partly evicted and changed again; `pair` has a key of two columns, blooms
and tokens; `events` only
appends; `hot` is never delivered. Every value is computed here, beside the server.
"""

import dataclasses
import pathlib
import random
import shutil
import time

from server import Options, Server
from wire import Wire

COMMON = ("--log-segment-bytes", "256KiB", "--log-flush-bytes", "2MiB", "--rows-memory-bytes", "16MiB")
COMMON += (
    "--lake-row-group-rows",
    "40",
    "--cache-local",
    "true",
    "--versions-kept-ms",
    "1h",
    "--query-partitions",
    "2",
)
FLAGS = (*COMMON, "--background", "false")
BACKGROUND = (*COMMON, "--background", "true", "--background-interval-ms", "100ms", "--compaction", "false")
N_PLAIN, N_PAIR, N_EVENTS, N_HOT = 2_400, 700, 900, 300
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu".split()

Row = tuple


@dataclasses.dataclass
class Question:
    table: str
    sql: str
    want: list[list[str | None]]
    # Asked again on the lake and on rows.
    every_path: bool = True


@dataclasses.dataclass
class Stored:
    """`folder / "killed"`, `"stopped"` and `"old"` are data folders; the first two have all of it, the last one what
    came first."""

    folder: pathlib.Path
    questions: list[Question]


def text_of(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=3)) + f" {rng.randrange(100_000)}"


def insert(wire: Wire, table: str, rows: list[Row]) -> None:
    for at in range(0, len(rows), 300):
        values = ", ".join("(" + ", ".join(literal(cell) for cell in row) + ")" for row in rows[at : at + 300])
        wire.must(f"INSERT INTO {table} VALUES {values}")


def literal(cell: object) -> str:
    return "NULL" if cell is None else str(cell) if isinstance(cell, int) else f"'{cell}'"


def build(tarn: pathlib.Path, folder: pathlib.Path, seed: int) -> Stored:
    rng = random.Random(f"{seed}/stored")
    server = Server(tarn, folder / "live", Options(FLAGS))
    plain: dict[int, list] = {}
    pair: dict[tuple[str, int], list] = {}
    events: list[Row] = []
    hot: dict[int, str] = {}
    late: dict[int, str] = {}
    with server:
        wire = Wire(server.port, 60)
        wire.must("CREATE TABLE plain (id int PRIMARY KEY, n bigint, t text)")
        wire.must(
            "CREATE TABLE pair (k text, j int, d date, t text, PRIMARY KEY (k, j)) WITH (tokens = 't', bloom = 'd')"
        )
        wire.must("CREATE TABLE events (id int PRIMARY KEY, n int) WITH (append_only = true)")
        wire.must("CREATE TABLE hot (id int PRIMARY KEY, v text)")
        first_half(rng, wire, plain, pair, events, hot)
        wire.close()
        server.stop()
        copy_folder(server.data, folder / "old")
        server.start()
        wire = Wire(server.port, 60)
        second_half(rng, wire, plain, pair, events, hot, late)
        questions = ask_about(rng, plain, pair, events, hot, late)
        check(wire, questions)  # and fills the caches
        server.kill()
        copy_folder(server.data, folder / "killed")
        # The metastore packs what was loose, and the log is trimmed.
        server.options = Options(BACKGROUND)
        server.start()
        wire = Wire(server.port, 60)
        deadline = time.monotonic() + 5
        while not list((server.data / "meta").rglob("*.pack")) and time.monotonic() < deadline:
            time.sleep(0.1)
        check(wire, questions)
        wire.close()
        server.stop()
        copy_folder(server.data, folder / "stopped")
    return Stored(folder, questions)


def first_half(rng, wire, plain, pair, events, hot) -> None:
    plain |= {key: [rng.randrange(1 << 40), text_of(rng)] for key in range(N_PLAIN)}
    insert(wire, "plain", [(key, *row) for key, row in plain.items()])
    wire.must("CALL tarn.deliver('plain')")
    pair |= {(f"k{key % 50}", key): [f"2024-0{key % 9 + 1}-1{key % 9}", text_of(rng)] for key in range(N_PAIR)}
    insert(wire, "pair", [(*key, *row) for key, row in pair.items()])
    wire.must("CALL tarn.deliver('pair')")
    events += [(key, rng.randrange(1_000)) for key in range(N_EVENTS // 2)]
    insert(wire, "events", events)
    wire.must("CALL tarn.deliver('events')")
    hot |= {key: text_of(rng) for key in range(N_HOT)}
    insert(wire, "hot", list(hot.items()))


def second_half(rng, wire, plain, pair, events, hot, late) -> None:
    for key in range(0, N_PLAIN, 7):
        plain[key][0] = key
    wire.must("UPDATE plain SET n = id WHERE id % 7 = 0")
    for key in range(5, N_PLAIN, 31):
        del plain[key]
    wire.must("DELETE FROM plain WHERE id % 31 = 5")
    wire.must("CALL tarn.deliver('plain')")
    more = {key: [rng.randrange(1 << 40), text_of(rng)] for key in range(N_PLAIN, N_PLAIN + 500)}
    plain |= more
    insert(wire, "plain", [(key, *row) for key, row in more.items()])
    wire.must("CALL tarn.deliver('plain')")
    wire.must("CALL tarn.compact('plain')")
    wire.must("CALL tarn.evict('plain')")
    for key in range(3, N_PLAIN + 500, 41):
        if key in plain:
            plain[key][0] = -key
    wire.must("UPDATE plain SET n = -id WHERE id % 41 = 3")
    wire.must("CALL tarn.flush('plain')")
    for key in list(pair):
        if key[1] % 13 == 0:
            pair[key][1] = "changed"
    wire.must("UPDATE pair SET t = 'changed' WHERE j % 13 = 0")
    wire.must("CALL tarn.deliver('pair')")
    # An older metastore does not know this one; its rows lie in the log alone.
    wire.must("CREATE TABLE late (id int PRIMARY KEY, v text)")
    late |= {key: text_of(rng) for key in range(N_HOT)}
    insert(wire, "late", list(late.items()))
    rows = [(key, rng.randrange(1_000)) for key in range(N_EVENTS // 2, N_EVENTS)]
    events += rows
    insert(wire, "events", rows)
    for key in range(0, N_HOT, 9):
        del hot[key]
    wire.must("DELETE FROM hot WHERE id % 9 = 0")


def ask_about(rng, plain, pair, events, hot, late) -> list[Question]:
    def cells(row) -> list[str | None]:
        return [None if cell is None else str(cell) for cell in row]

    questions = [
        Question(
            "plain", "SELECT id, n, t FROM plain ORDER BY id", [cells((key, *plain[key])) for key in sorted(plain)]
        ),
        Question(
            "plain",
            "SELECT count(*), sum(n), min(id), max(t) FROM plain",
            [cells((len(plain), sum(r[0] for r in plain.values()), min(plain), max(r[1] for r in plain.values())))],
        ),
        Question(
            "pair",
            "SELECT k, j, d, t FROM pair ORDER BY j",
            [cells((*key, *pair[key])) for key in sorted(pair, key=lambda key: key[1])],
        ),
        Question("pair", "SELECT d, count(*) FROM pair GROUP BY d ORDER BY d", grouped(pair)),
        Question("events", "SELECT id, n FROM events ORDER BY id", [cells(row) for row in sorted(events)]),
        Question(
            "events", "SELECT count(*), sum(n) FROM events", [cells((len(events), sum(row[1] for row in events)))]
        ),
        Question("hot", "SELECT id, v FROM hot ORDER BY id", [cells((key, hot[key])) for key in sorted(hot)]),
        Question("late", "SELECT id, v FROM late ORDER BY id", [cells((key, late[key])) for key in sorted(late)]),
        Question(
            "hot",
            "SELECT count(*) FROM hot WHERE v LIKE 'alpha%'",
            [[str(sum(v.startswith("alpha") for v in hot.values()))]],
        ),
    ]
    for key in rng.sample(range(N_PLAIN + 500), 4):
        questions.append(
            Question(
                "plain", f"SELECT n, t FROM plain WHERE id = {key}", [cells(plain[key])] if key in plain else [], False
            )
        )
    low = rng.randrange(1 << 40)
    questions.append(
        Question(
            "plain", f"SELECT count(*) FROM plain WHERE n > {low}", [[str(sum(row[0] > low for row in plain.values()))]]
        )
    )
    row = rng.choice(list(plain.values()))
    questions.append(
        Question(
            "plain",
            f"SELECT id FROM plain WHERE t = '{row[1]}' ORDER BY id",
            [[str(key)] for key in sorted(plain) if plain[key][1] == row[1]],
        )
    )
    word = rng.choice(WORDS)
    found = sorted(key for key, row in pair.items() if word in row[1].split())
    questions.append(
        Question(
            "pair", f"SELECT k, j FROM pair WHERE matches(t, '{word}') ORDER BY k, j", [cells(key) for key in found]
        )
    )
    questions.append(
        Question(
            "pair",
            "SELECT count(*) FROM pair WHERE d = '2024-03-12'",
            [[str(sum(row[0] == "2024-03-12" for row in pair.values()))]],
        )
    )
    k, j = rng.choice(list(pair))
    questions.append(Question("pair", f"SELECT d, t FROM pair WHERE k = '{k}' AND j = {j}", [cells(pair[k, j])], False))
    return questions


def grouped(pair) -> list[list[str]]:
    counts: dict[str, int] = {}
    for day, _ in pair.values():
        counts[day] = counts.get(day, 0) + 1
    return [[day, str(counts[day])] for day in sorted(counts)]


def wrong_answers(
    wire: Wire, questions: list[Question], paths: tuple[str, ...] = ("auto", "lake", "rows")
) -> tuple[list[str], list[tuple[Question, str]]]:
    """What is answered wrongly, and what is answered with an error (its text)."""
    wrong, errors = [], []
    for path in paths:
        wire.must(f"SET tarn.access_path = '{path}'")
        for question in questions:
            if path != "auto" and not question.every_path:
                continue
            answer = wire.ask(question.sql, 60)
            if answer.error is not None:
                # Rows that lie only in the lake cannot be read on the path of rows.
                if not (path == "rows" and answer.error.state == "0A000"):
                    errors.append((question, answer.error.everything()))
            elif answer.rows != question.want:
                wrong.append(f"{question.sql} on {path}: {difference(answer.rows, question.want)}")
    return wrong, errors


def difference(got: list, want: list) -> str:
    for idx, (one, other) in enumerate(zip(got, want)):
        if one != other:
            return f"row {idx} is {one}, want {other}"
    return f"{len(got)} rows, want {len(want)}"


def check(wire: Wire, questions: list[Question]) -> None:
    wrong, errors = wrong_answers(wire, questions)
    assert not wrong and not errors, f"before anything is damaged: {wrong[:3]} {[text for _, text in errors[:3]]}"


def copy_folder(source: pathlib.Path, target: pathlib.Path) -> None:
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target, symlinks=True)
