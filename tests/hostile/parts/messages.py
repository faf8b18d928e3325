"""Messages of the protocol, cut and twisted, before and after startup: an error or a closed connection, never more."""

import random
import socket
import struct
import time
from collections.abc import Iterator

import wire as protocol
from stage import Attack, Failure, Part, Stage
from wire import Hung, Left, Wire, message

# Each frontend message as a good client sends it, in an order in which all are valid.
GOOD: list[tuple[str, bytes]] = [
    ("Query", protocol.query("SELECT id, v FROM m WHERE id < 3")),
    ("Query of several", protocol.query("SELECT 1; INSERT INTO m VALUES (-1, 'x') ON CONFLICT DO NOTHING; SELECT 2")),
    ("empty Query", protocol.query("")),
    ("Parse", protocol.parse("SELECT v FROM m WHERE id = $1", b"s1", (23,))),
    ("Describe statement", protocol.describe(b"S", b"s1")),
    ("Bind", protocol.bind((b"1",), b"p1", b"s1")),
    ("Bind binary", protocol.bind((struct.pack(">i", 1),), b"p2", b"s1", binary=True)),
    ("Describe portal", protocol.describe(b"P", b"p1")),
    ("Execute", protocol.execute(b"p1", 1)),
    ("Execute all", protocol.execute(b"p2")),
    ("Flush", protocol.FLUSH),
    ("Close portal", message(b"C", b"Pp1\0")),
    ("Close statement", message(b"C", b"Ss1\0")),
    ("Sync", protocol.SYNC),
    ("COPY", protocol.query("COPY m FROM STDIN")),
    ("CopyData", protocol.copy_data(b"1000\tx\n")),
    ("CopyFail", protocol.copy_fail("no")),
    ("Query after", protocol.query("SELECT 3")),
    ("COPY csv", protocol.query("COPY m FROM STDIN (FORMAT csv)")),
    ("CopyData csv", protocol.copy_data(b'-5,"a,b"\n')),
    ("CopyDone", protocol.COPY_DONE),
    ("Password", message(b"p", b"secret\0")),
    ("FunctionCall", message(b"F", struct.pack(">ihhih", 1, 0, 1, 4, 0))),
    ("Terminate", protocol.TERMINATE),
]
LENGTHS = [0, 1, 2, 3, 4, 5, 7, 8, 100, 10_000, 1 << 20, (1 << 30) - 1, 1 << 30, (1 << 31) - 1, -1, -4, -(1 << 31)]
STORED_KINDS = (
    "boolean smallint int bigint real float8 numeric(10,2) text bytea date time timestamp timestamptz uuid".split()
)
N_PER_ATTACK = 12
HARD_S = 10.0


class Messages(Part):
    """Every frontend message cut at each byte, with wrong lengths, counts and ids; random bytes; startup packets of all
    kinds; slow clients."""

    name = "messages"

    def prepare(self, stage: Stage) -> None:
        with stage.wire() as wire:
            wire.must("CREATE TABLE m (id int PRIMARY KEY, v text)")
            wire.must("INSERT INTO m VALUES (0, 'a'), (1, 'b'), (2, NULL)")

    def attacks(self, stage: Stage) -> Iterator[Attack]:
        kinds = [
            cut,
            cut,
            twisted_length,
            twisted_bytes,
            twisted_bytes,
            mutated_stream,
            mutated_stream,
            random_bytes,
            counts,
        ]
        kinds += [
            random_parameters,
            stored_parameters,
            startups,
            startups,
            half_open,
            vanish,
            out_of_order,
            random_before_startup,
            cancels,
            not_utf8,
        ]
        while True:
            for kind in kinds:
                yield Attack(kind.__name__.replace("_", " "), kind)

    def afterwards(self, stage: Stage) -> None:
        """All attackers' sockets are closed: the server has let go of them, too. The second client's own is left."""
        deadline = time.monotonic() + 30
        while (left := stage.metric("tarn_connections")) > 2:
            if time.monotonic() > deadline:
                raise Failure(f"{left:.0f} connections are open 30 s after the last client left")
            time.sleep(0.2)


def attack_with(stage: Stage, data: bytes, greet: bool = True, close_write: bool = False) -> bytes:
    """Sends bytes and takes what comes, for a moment: what is answered matters less than what the server is
    afterwards."""
    wire = Wire(stage.server.port, HARD_S, greet)
    said = b""
    try:
        wire.send(data)
        if close_write:
            wire.socket.shutdown(socket.SHUT_WR)
        wire.socket.settimeout(0.05)
        while len(said) < 1 << 20:
            chunk = wire.socket.recv(1 << 16)
            if not chunk:
                break
            said += chunk
    except (TimeoutError, Left, OSError):
        pass
    finally:
        wire.close()
    return said


def still_serves(stage: Stage) -> None:
    if not stage.is_served():
        raise Hung("no new client is served")


def stream_until(name: str) -> bytes:
    """The good messages before the one named: the state in which it is valid."""
    before = []
    for other, data in GOOD:
        if other == name:
            break
        before.append(data)
    # Earlier COPYs are over by then; those that begin are ended by the list itself.
    return b"".join(before)


def cut(stage: Stage, rng: random.Random) -> None:
    name, data = rng.choice(GOOD)
    before = rng.choice([b"", stream_until(name)])
    for at in rng.sample(range(len(data)), min(N_PER_ATTACK, len(data))):
        attack_with(stage, before + data[:at], close_write=rng.random() < 0.7)
    still_serves(stage)


def twisted_length(stage: Stage, rng: random.Random) -> None:
    name, data = rng.choice(GOOD)
    for length in rng.sample(LENGTHS, min(N_PER_ATTACK, len(LENGTHS))):
        twisted = data[:1] + struct.pack(">i", length) + data[5:]
        behind = rng.choice([b"", protocol.query("SELECT 1"), rng.randbytes(50)])
        attack_with(stage, rng.choice([b"", stream_until(name)]) + twisted + behind, close_write=rng.random() < 0.5)
    # A body that is shorter than its fields say, with a length that is right.
    for at in rng.sample(range(5, max(6, len(data))), min(5, max(1, len(data) - 5))):
        attack_with(stage, message(data[:1], data[5:at]))
    still_serves(stage)


def twisted_bytes(stage: Stage, rng: random.Random) -> None:
    for _ in range(N_PER_ATTACK):
        name, data = rng.choice(GOOD)
        twisted = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            twisted[rng.randrange(len(twisted))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        attack_with(stage, rng.choice([b"", stream_until(name)]) + bytes(twisted) + protocol.SYNC)
    still_serves(stage)


def mutated_stream(stage: Stage, rng: random.Random) -> None:
    for _ in range(N_PER_ATTACK):
        stream = bytearray(b"".join(data for _, data in GOOD[:-1]))
        for _ in range(rng.randint(1, 8)):
            at, kind = rng.randrange(len(stream)), rng.randrange(4)
            if kind == 0:
                stream[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del stream[at : at + rng.randint(1, 20)]
            elif kind == 2:
                stream[at:at] = rng.randbytes(rng.randint(1, 20))
            else:
                other = rng.randrange(len(stream))
                stream[at:at] = stream[other : other + rng.randint(1, 60)]
        attack_with(stage, bytes(stream), close_write=rng.random() < 0.5)
    still_serves(stage)


def random_bytes(stage: Stage, rng: random.Random) -> None:
    for _ in range(N_PER_ATTACK):
        kind = rng.choice(b"QPBDECSHXdcfpF").to_bytes(1, "big") if rng.random() < 0.7 else rng.randbytes(1)
        body = rng.randbytes(rng.choice([0, 1, 3, 10, 100, 5_000]))
        attack_with(stage, message(kind, body) * rng.randint(1, 3))
        attack_with(stage, rng.randbytes(rng.choice([1, 5, 50, 5_000])))
    still_serves(stage)


def counts(stage: Stage, rng: random.Random) -> None:
    """Counts of parameters, formats and types that are not those of what follows."""
    some = [-1, 0, 1, 2, 100, 32767, -32768]
    for _ in range(N_PER_ATTACK):
        n_formats, n_values, n_results = (rng.choice(some) for _ in range(3))
        body = (
            b"\0s\0"
            + struct.pack(">h", n_formats)
            + struct.pack(">h", rng.choice([0, 1, 2, -1])) * rng.choice([0, 1, 2])
        )
        body += struct.pack(">h", n_values) + struct.pack(">i", rng.choice([-1, -2, 0, 1, 4, 1 << 30])) + b"abcd"
        body += struct.pack(">h", n_results)
        parsed = protocol.parse(
            "SELECT v FROM m WHERE id = $1",
            b"s",
            tuple(rng.choice([0, 23, 25, 1 << 30, -1]) for _ in range(rng.choice([0, 1, 9]))),
        )
        attack_with(stage, parsed + message(b"B", body) + protocol.execute() + protocol.SYNC)
        attack_with(stage, message(b"P", b"s\0SELECT $1\0" + struct.pack(">h", rng.choice(some))) + protocol.SYNC)
        attack_with(
            stage, protocol.extended("SELECT 1") + protocol.execute(b"", rng.choice([-1, 1 << 30])) + protocol.SYNC
        )
    still_serves(stage)


def random_parameters(stage: Stage, rng: random.Random) -> None:
    """Binary parameters of every type with bytes that may not be one: an answer each time, and the connection goes
    on."""
    types = "boolean smallint int bigint real float8 numeric(10,2) numeric text bytea date time timestamp timestamptz uuid json int[] text[] interval".split()
    with stage.wire() as wire:
        for _ in range(N_PER_ATTACK * 2):
            data = rng.randbytes(rng.choice([0, 1, 2, 4, 8, 12, 16, 20, 40]))
            sql = f"SELECT $1::{rng.choice(types)}"
            wire.send(
                protocol.parse(sql)
                + protocol.bind((data,), binary=True)
                + protocol.describe()
                + protocol.execute()
                + protocol.SYNC
            )
            try:
                answer = wire.until_ready(HARD_S)
            except Left as error:
                raise Failure(f"{error}; {sql} with {data.hex()}") from error
            if answer.error and (len(answer.error.state) != 5 or answer.error.state == "XX000"):
                raise Failure(f"{answer.error} for {sql} with {data.hex()}")


def stored_parameters(stage: Stage, rng: random.Random) -> None:
    """Binary parameters that are taken are stored; what is stored can be read, as text and in binary, and delivered."""
    table = f"stored_{rng.randrange(1 << 30)}"
    with stage.wire() as wire:
        columns = ", ".join(f"c{idx} {kind}" for idx, kind in enumerate(STORED_KINDS))
        wire.must(f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})")
        for key in range(60):
            idx = rng.randrange(len(STORED_KINDS))
            edge = rng.choice(
                [0, 1, -1, 1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63), -(1 << 63) + 5, 86_400_000_001]
            )
            data = rng.choice(
                [struct.pack(">q", edge), struct.pack(">q", edge)[4:], rng.randbytes(rng.choice([4, 8, 16]))]
            )
            sql = f"INSERT INTO {table} (id, c{idx}) VALUES ({key}, $1)"
            wire.send(protocol.parse(sql) + protocol.bind((data,), binary=True) + protocol.execute() + protocol.SYNC)
            taken = not wire.until_ready(HARD_S).error
            if not taken:
                continue
            for binary in (False, True):
                read = protocol.parse(f"SELECT c{idx} FROM {table} WHERE id = {key}") + protocol.bind(binary=binary)
                wire.send(read + protocol.execute() + protocol.SYNC)
                try:
                    error = wire.until_ready(HARD_S).error
                except Left as left:
                    raise Failure(
                        f"{STORED_KINDS[idx]} {data.hex()} is stored, and reading it ends the connection: {left}"
                    ) from left
                if error:
                    raise Failure(f"{STORED_KINDS[idx]} {data.hex()} is stored, and cannot be read: {error}")
        wire.must(f"CALL tarn.deliver('{table}')")
        wire.must(f"SELECT * FROM {table}")
        wire.must(f"DROP TABLE {table}")


def startups(stage: Stage, rng: random.Random) -> None:
    ssl, gss = struct.pack(">ii", 8, 80877103), struct.pack(">ii", 8, 80877104)
    for _ in range(N_PER_ATTACK):
        parameters = {
            "user": rng.choice(["tarn", "", "x" * 100_000, "ü"]),
            rng.choice(["database", "options", "replication", "a" * 5_000, ""]): "y" * rng.choice([0, 1, 200, 9_000]),
        }
        good = protocol.startup(
            parameters, rng.choice([196608, 196609, 131072, 0, -1, 80877102, 1 << 30, 196608 + (3 << 16)])
        )
        kind = rng.randrange(6)
        if kind == 0:
            data = good
        elif kind == 1:
            data = good[: rng.randrange(len(good))]
        elif kind == 2:
            data = struct.pack(">i", rng.choice(LENGTHS)) + good[4:]
        elif kind == 3:
            data = rng.choice(
                [
                    ssl,
                    gss,
                    ssl + gss,
                    gss + ssl,
                    ssl * 20,
                    ssl + good,
                    gss + ssl + good,
                    ssl + b"\x16\x03\x01\x02\x00" + rng.randbytes(512),
                ]
            )
        elif kind == 4:
            data = good[:8] + rng.randbytes(rng.choice([1, 10, 9_000]))
        else:
            many = b"".join(b"k%d\0v\0" % idx for idx in range(rng.choice([10, 1_000, 50_000])))
            data = struct.pack(">ii", len(many) + 9, 196608) + many + b"\0"
        attack_with(stage, data, greet=False, close_write=rng.random() < 0.5)
    still_serves(stage)


def random_before_startup(stage: Stage, rng: random.Random) -> None:
    for _ in range(N_PER_ATTACK):
        http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        tls = b"\x16\x03\x01\x00\xf0\x01\x00\x00\xec\x03\x03" + rng.randbytes(229)
        data = rng.choice(
            [rng.randbytes(rng.choice([1, 4, 8, 100, 9_000])), http, tls, b"\0" * 20_000, protocol.query("SELECT 1")]
        )
        attack_with(stage, data, greet=False)
    still_serves(stage)


def half_open(stage: Stage, rng: random.Random) -> None:
    """Sockets that stop in the middle of a message, many at once: others are served meanwhile."""
    sockets = []
    try:
        for _ in range(60):
            part = rng.choice([b"", b"\0", b"\0\0\0\x50", struct.pack(">ii", 8, 80877103), protocol.startup()[:10]])
            other = socket.create_connection(("127.0.0.1", stage.server.port), timeout=HARD_S)
            other.sendall(part)
            sockets.append(other)
        for _ in range(20):
            wire = stage.wire()
            sockets.append(wire.socket)
            whole = rng.choice([protocol.query("SELECT 1"), struct.pack(">ci", b"Q", 1 << 29) + b"x" * 100_000])
            wire.send(whole[: rng.choice([1, 3, 5, len(whole) - 1])])
        still_serves(stage)
    finally:
        for other in sockets:
            other.close()


def vanish(stage: Stage, rng: random.Random) -> None:
    """Clients that leave while they are answered, some without a word."""
    for _ in range(N_PER_ATTACK):
        wire = stage.wire()
        wire.send(
            rng.choice(
                [
                    protocol.query("SELECT count(*) FROM generate_series(1, 3000000) AS a (x) WHERE x % 7 = 3"),
                    protocol.query("SELECT repeat('x', 1000) FROM generate_series(1, 100000) AS s(value)"),
                    protocol.query("COPY m FROM STDIN") + protocol.copy_data(b"77\tx"),
                    protocol.query("BEGIN; INSERT INTO m VALUES (-7, 'held')"),
                    protocol.parse("SELECT 1") + protocol.bind() + protocol.execute(),
                ]
            )
        )
        if rng.random() < 0.5:
            # A reset instead of an orderly end.
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(rng.choice([0, 0.01, 0.05]))
        wire.close()
    with stage.wire() as wire:
        kept = wire.must("SELECT count(*) FROM m WHERE id IN (77, -7)").scalar()
        if kept != "0":
            raise Failure(f"{kept} rows that were never committed are there")


def out_of_order(stage: Stage, rng: random.Random) -> None:
    for _ in range(N_PER_ATTACK):
        picked = [data for _, data in rng.choices(GOOD[:-1], k=rng.randint(2, 30))]
        attack_with(stage, b"".join(picked))
    still_serves(stage)


def cancels(stage: Stage, rng: random.Random) -> None:
    for _ in range(N_PER_ATTACK * 2):
        key = struct.pack(">ii", rng.choice([0, 1, -1, rng.getrandbits(31)]), rng.choice([0, -1, rng.getrandbits(31)]))
        packet = struct.pack(">ii", rng.choice([16, 16, 12, 8, 20, 300]), 80877102) + key[: rng.choice([8, 8, 3, 0])]
        attack_with(stage, packet, greet=False)
    with stage.wire() as wire:
        wire.send(protocol.query("SELECT count(*) FROM generate_series(1, 2000000000) AS a (x) WHERE x % 7 = 3"))
        time.sleep(0.2)
        wire.cancel(stage.server.port)
        answer = wire.until_ready(HARD_S)
        if not answer.error or answer.error.state != "57014":
            raise Failure(f"a cancelled query answers {answer.error or answer.rows}")


def not_utf8(stage: Stage, rng: random.Random) -> None:
    """Text that is not UTF-8, or has a NUL, is refused (22021), wherever it stands; nothing of it is stored."""
    bad = rng.choice([b"caf\xe9", b"\xff", b"\xc3", b"a\xed\xa0\x80", b"\xf5\x80\x80\x80"])
    key = rng.randrange(10_000, 1 << 30)
    ways = {
        "Query": protocol.query(b"INSERT INTO m VALUES (%d, '%s')" % (key, bad)),
        "Parse": protocol.parse(b"INSERT INTO m VALUES (%d, '%s')" % (key, bad))
        + protocol.bind()
        + protocol.execute()
        + protocol.SYNC,
        "Bind": protocol.parse(f"INSERT INTO m VALUES ({key}, $1)")
        + protocol.bind((bad,))
        + protocol.execute()
        + protocol.SYNC,
        "Bind with NUL": protocol.parse(f"INSERT INTO m VALUES ({key}, $1)")
        + protocol.bind((b"a\0b",))
        + protocol.execute()
        + protocol.SYNC,
        "chr(0)": protocol.query(f"INSERT INTO m VALUES ({key}, chr(0))"),
    }
    name = rng.choice(list(ways))
    with stage.wire() as wire:
        wire.send(ways[name])
        answer = wire.until_ready(HARD_S)
        stored = wire.must(f"SELECT count(*) FROM m WHERE id = {key}").scalar()
    if stored != "0":
        raise Failure(f"{name}: text with {bad if 'NUL' not in name and name != 'chr(0)' else bytes(1)!r} is stored")
    if answer.error is None or answer.error.state not in ("22021", "22P02", "54000", "42601"):
        raise Failure(f"{name}: answered {answer.error}, want 22021")
