"""Statements of every shape and size, by each face: a result or an SQLSTATE in time, whatever they are."""

import http.client
import json
import random
from collections.abc import Iterator

import stage as staging
from stage import Attack, Failure, Part, Stage
from wire import Hung

from .grammar import CHAINS, FRAMES, LISTS, nested_expression

SIZES = [10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000]
QUICK_SIZES = [10, 30, 100, 300, 1_000, 3_000, 10_000]
MAX_TEXT_BYTES = 12 << 20
N_ROWS = 1_000
# What everyday programs send: these sizes have to work, not only to be survived.
MUST_WORK = [10, 500, 2_000, 5_000]
WORKING_S = 60


class Statements(Part):
    """Every form of the grammar at growing depth and size, by the simple and extended protocol and by HTTP."""

    name = "statements"

    def prepare(self, stage: Stage) -> None:
        with stage.wire() as wire:
            wire.must("CREATE TABLE w (id int PRIMARY KEY, a int, b boolean, v text)")
            rows = ", ".join(f"({idx}, {idx}, {idx % 2 == 0}, 't{idx}')" for idx in range(N_ROWS))
            wire.must(f"INSERT INTO w VALUES {rows}")

    def attacks(self, stage: Stage) -> Iterator[Attack]:
        order = random.Random(f"{stage.settings.seed}/shapes")
        must = [(shape, size) for shape in WORKING for size in MUST_WORK]
        while True:
            shapes: list[tuple[str, object]] = [(f"chain {name}", text) for name, text in CHAINS.items()]
            shapes += [(f"list {name}", text) for name, text in LISTS.items()]
            shapes += [("nest", None)] * (len(shapes) // 3)
            order.shuffle(shapes)
            order.shuffle(must)
            for idx, (name, text) in enumerate(shapes):
                if idx % 4 == 0 and must:
                    shape, size = must.pop()
                    yield Attack(
                        f"must work: {shape}, {size}", lambda s, _, shape=shape, size=size: works(s, shape, size)
                    )
                yield Attack(name, lambda s, rng, text=text: survive(s, rng, text))


def survive(stage: Stage, rng: random.Random, text) -> None:
    size = rng.choice(QUICK_SIZES if stage.settings.quick else SIZES)
    if text is None:
        detail, expression = nested_expression(rng, size)
        sql = (
            f"SELECT {expression} FROM w"
            if rng.random() < 0.7
            else f"SELECT count(*) FROM w WHERE ({expression}) IS NULL"
        )
    else:
        detail, sql = "", text(size)
    frame, around = rng.choice(FRAMES)
    sql = around(sql)
    face = rng.choice(["simple", "extended", "http"])
    if len(sql) > MAX_TEXT_BYTES:
        sql = sql[:MAX_TEXT_BYTES]
    about = f"{detail} {size} elements, {len(sql)} bytes, {face}{', ' + frame if frame else ''}: {sql[:60]!r}"
    try:
        ask(stage, sql, face)
    except Hung as hung:
        raise Hung(f"{hung} in {stage.part.patience_s:.0f} s; {about}") from hung
    except Exception as error:
        raise Failure(f"{type(error).__name__} {error}; {about}") from error
    if not stage.server.is_alive():
        raise Failure(f"died of {about}")


def ask(stage: Stage, sql: str, face: str) -> None:
    if face == "http":
        state = by_http(stage, sql)
    else:
        with stage.wire() as wire:
            answer = wire.ask(sql) if face == "simple" else wire.ask_extended(sql)
            state = answer.error.state if answer.error else None
            # The connection goes on, unless it was told that it does not.
            if not answer.error or answer.error.fields.get("S") != "FATAL":
                if answer.status != "I":
                    wire.ask("ROLLBACK")
                wire.must("SELECT 1")
    if state is not None and len(state) != 5:
        raise Failure(f"no SQLSTATE: {state!r}")
    if state is not None and state.startswith("XX"):
        stage.note(f"{state} for {sql[:50]!r}")


def by_http(stage: Stage, sql: str) -> str | None:
    connection = http.client.HTTPConnection("127.0.0.1", stage.server.http_port, timeout=stage.part.patience_s)
    try:
        body = json.dumps({"sql": sql})
        try:
            connection.request("POST", "/v1/sql", body, {"Content-Type": "application/json"})
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before all was read: the answer is there
        response = connection.getresponse()
        said = response.read()
    except TimeoutError as error:
        raise Hung("no answer by HTTP") from error
    except (http.client.HTTPException, ConnectionError) as error:
        if len(sql) > staging.MEBIBYTE and stage.server.is_alive():
            return None  # too long, and cut off
        raise Failure(f"HTTP ended with {error}") from error
    finally:
        connection.close()
    if response.status == 413:
        return None
    answer = json.loads(said)
    return answer["error"]["code"] if "error" in answer else None


def works(stage: Stage, shape: str, size: int) -> None:
    """ORs and INs of thousands of terms have the right answer."""
    sql, want = WORKING[shape](size)
    with stage.wire(WORKING_S + 30) as wire:
        # It is to work; how fast is not asked here.
        wire.must(f"SET statement_timeout = '{WORKING_S}s'")
        # What other attacks have inserted.
        wire.must("DELETE FROM w WHERE id < 0")
        answer = wire.ask(sql)
        if answer.error:
            raise Failure(f"{answer.error}, but {size} terms have to work: {sql[:60]!r}")
        got = answer.rows[0][0] if answer.rows else (answer.tags[0] if answer.tags else None)
        if got != want:
            raise Failure(f"{got}, want {want}: {sql[:60]!r}")


def terms(element, by: str, n: int) -> str:
    return by.join(element(idx) for idx in range(n))


WORKING = {
    "OR": lambda n: (f"SELECT count(*) FROM w WHERE {terms(lambda i: f'a = {i}', ' OR ', n)}", str(min(n, N_ROWS))),
    "OR of texts": lambda n: (
        "SELECT count(*) FROM w WHERE " + terms(lambda i: f"v = 't{i}'", " OR ", n),
        str(min(n, N_ROWS)),
    ),
    "OR of ANDs": lambda n: (
        "SELECT count(*) FROM w WHERE " + terms(lambda i: f"(a = {i} AND id = {i})", " OR ", n),
        str(min(n, N_ROWS)),
    ),
    "AND": lambda n: (
        "SELECT count(*) FROM w WHERE " + terms(lambda i: f"a <> {i}", " AND ", n),
        str(N_ROWS - min(n, N_ROWS)),
    ),
    "IN": lambda n: (f"SELECT count(*) FROM w WHERE a IN ({terms(str, ', ', n)})", str(min(n, N_ROWS))),
    "keys": lambda n: (f"SELECT count(*) FROM w WHERE id IN ({terms(str, ', ', n)})", str(min(n, N_ROWS))),
    "UPDATE OR": lambda n: (
        f"UPDATE w SET v = v WHERE {terms(lambda i: f'id = {i}', ' OR ', n)}",
        f"UPDATE {min(n, N_ROWS)}",
    ),
    "VALUES": lambda n: ("SELECT count(*) FROM (VALUES " + terms(lambda i: f"({i})", ", ", n) + ") AS s (x)", str(n)),
}
