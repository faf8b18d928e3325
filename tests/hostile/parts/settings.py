"""Every setting that a client can set, set to what it should not be."""

import random
from collections.abc import Iterator

from stage import MEBIBYTE, Attack, Failure, Part, Stage
from wire import Wire

VALUES = [
    "0",
    "-1",
    "1",
    "1000000",
    "100000000",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
    "NaN",
    "1e308",
    "true",
]
VALUES += [
    "false",
    "",
    " ",
    "x" * 100_000,
    "'",
    "\\",
    "ü\U0001f600",
    "/etc/passwd",
    "../../x",
    "0.0000001",
    "1B",
    "999999GB",
    "UTC",
    "+99:99",
    "NULL",
    "off",
    "on",
]
# With these, answers are those of an earlier time.
PAST = ("tarn.as_of_version", "tarn.as_of_time")
MAX_GROWTH_BYTES = 768 * MEBIBYTE

# Statement and its answer, whatever is set; an error is right, too.
QUESTIONS = [
    ("SELECT count(*) FROM s", "3000"),
    ("SELECT sum(c) FROM (SELECT g, count(*) AS c FROM s GROUP BY g) AS x", "3000"),
    ("SELECT count(*) FROM s AS x JOIN s AS y ON x.g = y.id", "3000"),
    ("SELECT max(id) FROM (SELECT id FROM s ORDER BY g, id LIMIT 100) AS x", "2970"),
    ("SELECT count(DISTINCT g) FROM s WHERE v LIKE 'v1%'", "30"),
    ("SELECT v FROM s WHERE id = 77", "v77"),
]


class ServerSettings(Part):
    """SET of everything in SHOW ALL to hostile values: answers stay right or are errors, others do not notice, RESET
    ALL undoes it."""

    name = "settings"

    def prepare(self, stage: Stage) -> None:
        with stage.wire() as wire:
            wire.must("CREATE TABLE s (id int PRIMARY KEY, g int, v text)")
            wire.must(
                "INSERT INTO s SELECT value::int, (value % 30)::int, 'v' || value::text FROM generate_series(0, 1999) AS s(value)"
            )
            wire.must("CALL tarn.deliver('s')")
            wire.must(
                "INSERT INTO s SELECT value::int, (value % 30)::int, 'v' || value::text FROM generate_series(2000, 2999) AS s(value)"
            )

    def attacks(self, stage: Stage) -> Iterator[Attack]:
        with stage.wire() as wire:
            names = sorted({row[0] for row in wire.must("SHOW ALL").rows if row[0]})
        order = random.Random(f"{stage.settings.seed}/settings")
        while True:
            order.shuffle(names)
            for name in names:
                yield Attack(f"SET {name}", lambda s, rng, name=name: set_to_anything(s, rng, name))


def set_to_anything(stage: Stage, rng: random.Random, name: str) -> None:
    for value in rng.sample(VALUES, 4):
        stage.server.peak_rss_bytes = before = stage.server.rss_bytes()
        with stage.wire() as wire:
            shown = wire.ask(f"SHOW {name}").rows
            quoted = value.replace("'", "''")
            answer = wire.ask(f"SET {name} = '{quoted}'")
            if answer.error and answer.error.fields.get("S") == "FATAL":
                raise Failure(f"SET {name} = {value[:40]!r} ends the connection: {answer.error}")
            if answer.error is None:
                ask_all(stage, rng, wire, f"SET {name} = {value[:40]!r}", is_past=name in PAST)
            elif len(answer.error.state) != 5:
                raise Failure(f"no SQLSTATE: SET {name} = {value[:40]!r}")
            wire.must("RESET ALL")
            after = wire.ask(f"SHOW {name}").rows
            if after != shown:
                raise Failure(f"SET {name} = {value[:40]!r}; RESET ALL: {after}, was {shown}")
        grown = stage.server.peak_rss_bytes - before
        stage.peak_rss_bytes = max(stage.peak_rss_bytes, stage.server.peak_rss_bytes)
        if grown > MAX_GROWTH_BYTES:
            raise Failure(f"SET {name} = {value[:40]!r} and a query took {grown // MEBIBYTE} MiB")


def ask_all(stage: Stage, rng: random.Random, wire: Wire, about: str, is_past: bool) -> None:
    for sql, want in rng.sample(QUESTIONS, 3):
        answer = wire.ask(sql)
        if not is_past and answer.error is None and (len(answer.rows) != 1 or answer.rows[0][0] != want):
            raise Failure(f"{about}; {sql}: {answer.rows[:2]}, want {want}")
        if answer.error and answer.error.state.startswith("XX"):
            stage.note(f"{answer.error.state} {answer.error.fields.get('M', '')[:60]!r} after {about}")
