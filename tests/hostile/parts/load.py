"""Many clients that do nothing, or too much: everybody else is served."""

import random
import socket
import struct
import time
from collections.abc import Iterator

import wire as protocol
from stage import MEBIBYTE, Attack, Failure, Part, Stage
from wire import Hung, Left, ServerError, Wire

MAX_CONNECTIONS = 300
# What a client that wants in is asked to wait for while places are taken by those that never begin.
PLACE_S = 60.0
MAX_GROWTH_BYTES = 768 * MEBIBYTE


class Load(Part):
    """Idle, half-open and silent connections, COPYs without data, prepared statements and cursors without end, held
    transactions."""

    name = "load"
    flags = (
        "--max-connections",
        str(MAX_CONNECTIONS),
        "--log-segment-bytes",
        "256KiB",
        "--log-flush-bytes",
        "2MiB",
        "--rows-memory-bytes",
        "16MiB",
    )
    # The usual soft limit, as the hard one: descriptors can run out.
    open_files = 1024
    share = 1.5

    def prepare(self, stage: Stage) -> None:
        with stage.wire() as wire:
            wire.must("CREATE TABLE l (id bigint PRIMARY KEY, v text)")
            wire.must("INSERT INTO l SELECT value, repeat('x', 100) FROM generate_series(1, 2000) AS s(value)")

    def attacks(self, stage: Stage) -> Iterator[Attack]:
        kinds = [
            silent_sockets,
            idle_connections,
            prepared_without_end,
            half_started,
            idle_copies,
            fetch_all,
            held_transactions,
            cursors_without_end,
        ]
        kinds += [queries_of_the_gone, slow_readers, many_writers, unfinished_messages, many_tables, cancelled_joins]
        order = random.Random(f"{stage.settings.seed}/load")
        while True:
            order.shuffle(kinds)
            for kind in kinds:
                yield Attack(kind.__name__.replace("_", " "), kind)

    def afterwards(self, stage: Stage) -> None:
        writes(stage, "after all")
        deadline = time.monotonic() + 40
        while (left := stage.metric("tarn_connections")) > 2:
            if time.monotonic() > deadline:
                raise Failure(f"{left:.0f} connections are open 40 s after the last client left")
            time.sleep(0.2)


def writes(stage: Stage, when: str) -> None:
    """Somebody else inserts, updates, delivers and reads."""
    with patient(stage) as wire:
        key = time.monotonic_ns()
        for sql in (
            f"INSERT INTO l VALUES ({key}, 'w')",
            f"UPDATE l SET v = 'u' WHERE id = {key}",
            "CALL tarn.flush('l')",
            "CALL tarn.deliver('l')",
            f"DELETE FROM l WHERE id = {key}",
        ):
            answer = wire.ask(sql)
            if answer.error:
                raise Failure(f"{when}: {sql}: {answer.error}")


def patient(stage: Stage) -> Wire:
    """A new client; told that there is no place (53300), or not answered, it comes again for a while."""
    deadline = time.monotonic() + PLACE_S
    while True:
        try:
            return stage.wire()
        except (ServerError, Left, Hung, OSError) as error:
            if time.monotonic() > deadline or not stage.server.is_alive():
                raise Failure(f"a good client found no place in {PLACE_S:.0f} s: {error}") from error
            time.sleep(0.5)


def sockets_of(stage: Stage, count: int, said: bytes = b"") -> list[socket.socket]:
    sockets = []
    for _ in range(count):
        try:
            other = socket.create_connection(("127.0.0.1", stage.server.port), timeout=5)
            sockets.append(other)
            if said:
                other.sendall(said)
        except OSError:
            break
    return sockets


def close_all(sockets: list) -> None:
    for other in sockets:
        other.close()


def silent_sockets(stage: Stage, rng: random.Random) -> None:
    """More sockets than the server has descriptors, which say nothing; writes go on beside, and at the latest when they
    left."""
    sockets = sockets_of(stage, 1_100)
    try:
        if not stage.settings.quick:
            for _ in range(10):
                time.sleep(1)
                with patient(stage) as wire:
                    wire.ask(
                        "INSERT INTO l SELECT 1000000 + value, repeat('y', 1000) FROM generate_series(1, 2000) AS s(value) ON CONFLICT DO NOTHING"
                    )
        writes(stage, f"beside {len(sockets)} silent sockets")
    finally:
        close_all(sockets)
    writes(stage, "after silent sockets left")


def half_started(stage: Stage, rng: random.Random) -> None:
    said = rng.choice(
        [
            struct.pack(">ii", 8, 80877103),
            protocol.startup()[:9],
            struct.pack(">ii", 8, 80877103) + struct.pack(">ii", 8, 80877104),
        ]
    )
    sockets = sockets_of(stage, MAX_CONNECTIONS + 50, said)
    try:
        writes(stage, f"beside {len(sockets)} half-started connections")
    finally:
        close_all(sockets)


def idle_connections(stage: Stage, rng: random.Random) -> None:
    wires = []
    try:
        for _ in range(MAX_CONNECTIONS - 50):
            wires.append(stage.wire())
        writes(stage, f"beside {len(wires)} idle connections")
        # Too many are told so, at once.
        refused = 0
        for _ in range(80):
            try:
                wires.append(stage.wire())
            except ServerError as error:
                refused += 1
                if error.state != "53300":
                    raise Failure(f"a connection too many is told {error}") from error
        if not refused:
            raise Failure("no connection was refused")
    finally:
        close_all(wires)
    writes(stage, "after idle connections left")


def idle_copies(stage: Stage, rng: random.Random) -> None:
    wires = []
    try:
        for _ in range(MAX_CONNECTIONS - 60):
            wire = stage.wire()
            wires.append(wire)
            wire.send(protocol.query("COPY l FROM STDIN"))
        writes(stage, f"beside {len(wires)} COPYs without data")
    finally:
        close_all(wires)


def prepared_without_end(stage: Stage, rng: random.Random) -> None:
    stage.server.peak_rss_bytes = before = stage.server.rss_bytes()
    n_statements = 3_000 if stage.settings.quick else 20_000
    refused = 0
    with stage.wire() as wire:
        for at in range(0, n_statements, 200):
            names = [b"s%d" % idx for idx in range(at, at + 200)]
            wire.send(
                b"".join(
                    protocol.parse(b"SELECT v FROM l WHERE id = %d + $1" % idx, name)
                    for idx, name in enumerate(names, at)
                )
                + protocol.SYNC
            )
            answer = wire.until_ready(60)
            if answer.error:
                refused += 1
                if answer.error.state not in ("53400", "54000", "53200", "53000"):
                    raise Failure(f"statement {at}: {answer.error}")
                break
        wire.must("DEALLOCATE ALL")
        # They are gone by name, too.
        wire.send(protocol.parse(b"SELECT 1", b"s1") + protocol.SYNC)
        answer = wire.until_ready(20)
        if answer.error:
            raise Failure(f"after DEALLOCATE ALL: {answer.error}")
    grown(stage, before, f"{n_statements} prepared statements{', refused' if refused else ''}", 512 * MEBIBYTE)


def grown(stage: Stage, before: int, about: str, limit: int = MAX_GROWTH_BYTES) -> None:
    peak = stage.server.peak_rss_bytes
    stage.peak_rss_bytes = max(stage.peak_rss_bytes, peak)
    if peak - before > limit:
        raise Failure(f"{about} took {(peak - before) // MEBIBYTE} MiB")


def fetch_all(stage: Stage, rng: random.Random) -> None:
    """A cursor's result that is larger than memory may be, read slowly."""
    stage.server.peak_rss_bytes = before = stage.server.rss_bytes()
    how = rng.choice(["FETCH ALL FROM c", "FETCH 1000000 FROM c", "MOVE ALL FROM c", "FETCH LAST FROM c"])
    with stage.wire() as wire:
        wire.must("BEGIN")
        wire.must("DECLARE c CURSOR FOR SELECT repeat('x', 20000) FROM generate_series(1, 100000) AS s(value)")
        wire.send(protocol.query(how))
        ends = time.monotonic() + stage.part.statement_timeout_s + 3
        received = 0
        wire.socket.settimeout(stage.part.patience_s)
        try:
            while time.monotonic() < ends and (chunk := wire.socket.recv(1 << 20)):
                received += len(chunk)
                if chunk.endswith((b"Z\0\0\0\5T", b"Z\0\0\0\5E")):
                    break
        except TimeoutError as error:
            raise Hung(f"no answer to {how}") from error
    grown(stage, before, f"{how} of 2 GB")


def held_transactions(stage: Stage, rng: random.Random) -> None:
    stage.server.peak_rss_bytes = before = stage.server.rss_bytes()
    wires = []
    try:
        for _ in range(15 if stage.settings.quick else 60):
            wire = stage.wire()
            wires.append(wire)
            wire.must("BEGIN")
            answer = wire.ask(
                f"INSERT INTO l SELECT {rng.randrange(1 << 40)} + value, repeat('z', 100) FROM generate_series(1, 30000) AS s(value)"
            )
            if answer.error and answer.error.state not in ("53200", "53400", "54000", "57014"):
                raise Failure(f"a held INSERT: {answer.error}")
        writes(stage, f"beside {len(wires)} held transactions")
    finally:
        close_all(wires)
    grown(stage, before, f"{len(wires)} held transactions")


def cursors_without_end(stage: Stage, rng: random.Random) -> None:
    stage.server.peak_rss_bytes = before = stage.server.rss_bytes()
    with stage.wire() as wire:
        wire.must("BEGIN")
        for idx in range(500):
            answer = wire.ask(f"DECLARE c{idx} CURSOR FOR SELECT * FROM l ORDER BY v; FETCH 1 FROM c{idx}")
            if answer.error:
                if answer.error.state not in ("53200", "53400", "54000", "57014"):
                    raise Failure(f"cursor {idx}: {answer.error}")
                break
    grown(stage, before, "500 cursors")


def queries_of_the_gone(stage: Stage, rng: random.Random) -> None:
    """Clients that ask for long work and leave at once: their places are free soon."""
    for _ in range(MAX_CONNECTIONS - 60):
        wire = patient(stage)
        wire.send(protocol.query("SELECT count(*) FROM l AS a, l AS b, l AS c WHERE a.v < b.v || c.v"))
        wire.close()
    writes(stage, "after clients with long queries left")


def slow_readers(stage: Stage, rng: random.Random) -> None:
    stage.server.peak_rss_bytes = before = stage.server.rss_bytes()
    wires = []
    try:
        for _ in range(20):
            wire = stage.wire()
            wires.append(wire)
            wire.send(protocol.query("SELECT repeat('x', 10000) FROM generate_series(1, 100000) AS s(value)"))
        time.sleep(1)
        writes(stage, "beside slow readers")
    finally:
        close_all(wires)
    grown(stage, before, "20 clients that do not read")


def many_writers(stage: Stage, rng: random.Random) -> None:
    """All at once, then all are counted: nothing acknowledged is missing, nothing is there twice."""
    first = rng.randrange(1 << 40) * 1_000
    wires = []
    try:
        for _ in range(60):
            wires.append(stage.wire())
        for round_ in range(5):
            for idx, wire in enumerate(wires):
                wire.send(protocol.query(f"INSERT INTO l VALUES ({first + round_ * 60 + idx}, 'many')"))
            for wire in wires:
                answer = wire.until_ready(stage.part.patience_s)
                if answer.error or answer.tags != ["INSERT 0 1"]:
                    raise Failure(f"one of 60 writers: {answer.error or answer.tags}")
        count = wires[0].must(f"SELECT count(*) FROM l WHERE id >= {first} AND id < {first + 1000}").scalar()
        if count != "300":
            raise Failure(f"{count} of 300 acknowledged rows are there")
    finally:
        close_all(wires)


def unfinished_messages(stage: Stage, rng: random.Random) -> None:
    """Headers that promise a lot, with a part of it: what is held of one connection that never finishes is bounded."""
    stage.server.peak_rss_bytes = before = stage.server.rss_bytes()
    promised = rng.choice([1 << 24, 1 << 29, (1 << 30) - 1])
    kind = rng.choice([b"Q", b"P", b"B", b"d", b"p"])
    wires = []
    try:
        for _ in range(20):
            wire = stage.wire()
            wires.append(wire)
            try:
                wire.send(kind + struct.pack(">i", promised))
                for _ in range(8 if stage.settings.quick else 60):
                    wire.send(b"x" * MEBIBYTE)
            except Left:
                pass  # refused as too long
        writes(stage, "beside unfinished messages")
    finally:
        close_all(wires)
    grown(stage, before, f"20 unfinished messages {kind!r} of {promised} bytes")
    sockets = sockets_of(stage, 10, struct.pack(">i", promised) + struct.pack(">i", 196608) + b"x" * 2_000_000)
    close_all(sockets)
    grown(stage, before, f"10 unfinished startup packets of {promised} bytes")


def many_tables(stage: Stage, rng: random.Random) -> None:
    count = 20 if stage.settings.quick else 200
    with stage.wire() as wire:
        for idx in range(count):
            wire.must(f"CREATE TABLE many_{idx} (id int PRIMARY KEY, v text)")
            wire.must(f"INSERT INTO many_{idx} VALUES (1, 'x')")
        wire.must("SELECT count(*) FROM pg_class")
        for idx in range(count):
            wire.must(f"DROP TABLE many_{idx}")


def cancelled_joins(stage: Stage, rng: random.Random) -> None:
    """A join that is cut off stops, and gives back what it took: the same again works, and others have the
    processor."""
    with stage.wire() as wire:
        wire.must("SET statement_timeout = '500ms'")
        for _ in range(4):
            wire.ask(
                "SELECT count(*) FROM generate_series(1, 300000) AS a (x), generate_series(1, 300000) AS b (y) WHERE a.x < b.y + 1"
            )
    deadline = time.monotonic() + 10
    while (held := stage.metric("tarn_query_memory_bytes")) > MEBIBYTE:
        if time.monotonic() > deadline:
            raise Failure(f"10 s after four joins were cut off, queries hold {held:.0f} bytes")
        time.sleep(0.2)
