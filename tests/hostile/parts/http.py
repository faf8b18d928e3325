"""HTTP: garbage, slow clients, large bodies, and web pages of strangers."""

import json
import random
import socket
import time
from collections.abc import Iterator

from stage import Attack, Failure, Part, Stage
from wire import Hung

N_SLOW = 150
# A connection that has not sent its request by then was given enough time.
SLOW_LIMIT_S = 150
# What a good client waits for while others hold places and say nothing.
PLACE_S = 60.0


class Http(Part):
    """Garbage, slowloris, big bodies, chunks, many connections; SQL runs only for a JSON request to a known host from
    no foreign page."""

    name = "http"

    def prepare(self, stage: Stage) -> None:
        with stage.wire() as wire:
            wire.must("CREATE TABLE h (id int PRIMARY KEY)")

    def attacks(self, stage: Stage) -> Iterator[Attack]:
        kinds = [
            well_behaved,
            foreign_page,
            garbage,
            foreign_page,
            bodies,
            slow,
            foreign_page,
            chunks,
            many,
            big_result,
        ]
        while True:
            for kind in kinds:
                yield Attack(kind.__name__.replace("_", " "), kind)
            if not stage.settings.quick:
                yield Attack("slow clients are sent away", slow_clients_are_sent_away)


def exchange(stage: Stage, data: bytes, timeout_s: float = 20.0) -> bytes:
    """Sends a request that says `Connection: close`, takes everything until the server closes."""
    said = b""
    with socket.create_connection(("127.0.0.1", stage.server.http_port), timeout=timeout_s) as other:
        try:
            other.sendall(data)
            while chunk := other.recv(1 << 16):
                said += chunk
        except TimeoutError as error:
            raise Hung(f"no answer by HTTP to {data[:80]!r}") from error
        except OSError:
            pass
    return said


def throw(stage: Stage, data: bytes) -> None:
    """Sends what is no request: whether it is answered, waited for or cut off is the server's choice."""
    with socket.create_connection(("127.0.0.1", stage.server.http_port), timeout=20) as other:
        try:
            other.sendall(data)
            other.settimeout(0.1)
            while other.recv(1 << 16):
                pass
        except OSError:
            pass


def request(body: bytes, headers: dict[str, str], method: str = "POST", path: str = "/v1/sql") -> bytes:
    lines = [f"{method} {path} HTTP/1.1"] + [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def good_headers(stage: Stage) -> dict[str, str]:
    return {"Host": stage.server.http, "Content-Type": "application/json"}


def sql(text: str) -> bytes:
    return json.dumps({"sql": text}).encode()


def lives(stage: Stage) -> None:
    """A place may be taken by those who say nothing, for a while."""
    deadline = time.monotonic() + PLACE_S
    while True:
        answer = exchange(stage, request(b"", {"Host": stage.server.http}, "GET", "/livez"), PLACE_S)
        if status(answer) == 200:
            return
        if time.monotonic() > deadline:
            raise Failure(f"/livez answers {answer[:100]!r} for {PLACE_S} s")
        time.sleep(0.5)


def well_behaved(stage: Stage, rng: random.Random) -> None:
    """What is allowed keeps working."""
    headers = good_headers(stage)
    headers["Content-Type"] = rng.choice(["application/json", "application/json; charset=utf-8"])
    headers["Host"] = rng.choice([stage.server.http, f"localhost:{stage.server.http_port}"])
    answer = exchange(stage, request(sql("SELECT 40 + 2 AS x"), headers))
    if status(answer) != 200 or b"42" not in answer:
        raise Failure(f"{headers}: {answer[:300]!r}")
    for path in ("/livez", "/readyz", "/metrics"):
        answer = exchange(stage, request(b"", {"Host": stage.server.http}, "GET", path))
        if status(answer) != 200:
            raise Failure(f"{path}: {answer[:200]!r}")


def foreign_page(stage: Stage, rng: random.Random) -> None:
    """What a browser sends for a stranger's page runs nothing: another content type, origin or host (also by DNS
    rebinding)."""
    headers = good_headers(stage)
    wrong = rng.choice(["type", "type", "origin", "host", "null origin", "no type", "referer of a page"])
    if wrong == "type":
        headers["Content-Type"] = rng.choice(
            [
                "text/plain",
                "application/x-www-form-urlencoded",
                "multipart/form-data; boundary=x",
                "text/plain; application/json",
                "application/jsonp",
            ]
        )
    elif wrong == "no type":
        del headers["Content-Type"]
    elif wrong == "origin":
        port = stage.server.http_port
        headers["Origin"] = rng.choice(
            [
                "http://evil.example",
                "https://evil.example",
                f"http://127.0.0.1.evil.example:{port}",
                f"http://evil.example:{port}",
                "http://localhost:1",
            ]
        )
    elif wrong == "null origin":
        headers["Origin"] = "null"
    elif wrong == "host":
        headers["Host"] = rng.choice(
            [
                "evil.example",
                f"evil.example:{stage.server.http_port}",
                f"127.0.0.1.evil.example:{stage.server.http_port}",
            ]
        )
    else:
        headers |= {"Origin": "http://evil.example", "Referer": "http://evil.example/x", "Content-Type": "text/plain"}
    key = rng.randrange(1 << 30)
    answer = exchange(stage, request(sql(f"INSERT INTO h VALUES ({key})"), headers))
    with stage.wire() as wire:
        if wire.must(f"SELECT count(*) FROM h WHERE id = {key}").scalar() != "0":
            raise Failure(f"SQL ran for a foreign page ({wrong}: {headers}): {answer[:40]!r}")
    if not 400 <= status(answer) < 500:
        raise Failure(f"{wrong}, {headers}: {answer[:200]!r}")


def garbage(stage: Stage, rng: random.Random) -> None:
    for _ in range(15):
        kind = rng.randrange(8)
        if kind == 0:
            data = rng.randbytes(rng.choice([1, 10, 1_000, 100_000]))
        elif kind == 1:
            data = b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * rng.choice([10, 1_000, 50_000]) + b"\r\n"
        elif kind == 2:
            data = b"GET /" + b"a" * rng.choice([1_000, 1_000_000]) + b" HTTP/1.1\r\n\r\n"
        elif kind == 3:
            data = (
                rng.choice([b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT", b"PRI * HTTP/2.0\r\n\r\nSM"])
                + b" /v1/sql HTTP/1.1\r\nHost: x\r\n\r\n"
            )
        elif kind == 4:
            data = b"GET /livez HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
        elif kind == 5:
            data = b"POST /v1/sql HTTP/1.1\r\nContent-Length: %s\r\n\r\n{}" % rng.choice(
                [b"-1", b"99999999999999999999", b"1e3", b"2, 3", b"0x5"]
            )
        elif kind == 6:
            good = bytearray(request(sql("SELECT 1"), good_headers(stage)))
            good[rng.randrange(len(good))] = rng.randrange(256)
            data = bytes(good)
        else:
            data = request(sql("SELECT 1"), good_headers(stage)) * rng.choice([2, 200])
        throw(stage, data)
    lives(stage)


def bodies(stage: Stage, rng: random.Random) -> None:
    """Bodies that are no request: large, deep, not UTF-8, not JSON."""
    mega = 1 << (20 if stage.settings.quick else 24)
    choices = [
        b"x" * mega,
        b"[" * 100_000,
        b'{"sql":' * 50_000,
        b'{"sql": "' + b"\\u0000" * 1_000 + b'"}',
        b'{"sql": "\xff\xfe"}',
        b"",
        b"null",
        b"1",
        b'{"sql": 1}',
        b'{"sql": "SELECT 1", "sql": "SELECT 2"}',
        b'{"sql": "SELECT 1", "other": 1}',
        sql(" " * mega),
        sql(";" * 100_000),
        sql("SELECT '" + "x" * mega + "'"),
        sql("\ud800".encode("utf-8", "surrogatepass").decode("latin1")),
        sql("COPY h FROM STDIN"),
        sql("BEGIN"),
    ]
    for body in rng.sample(choices, 4):
        exchange(stage, request(body, good_headers(stage)), timeout_s=30)
    lives(stage)


def chunks(stage: Stage, rng: random.Random) -> None:
    head = b"POST /v1/sql HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    head %= stage.server.http.encode()
    body = sql("SELECT 7")
    one = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    for tail in [
        one,
        b"ffffffffffffffff\r\nxx",
        b"-1\r\nxx\r\n",
        b"zz\r\n",
        b"5\r\nab",
        b"1" * 50_000,
        b"1;" + b"e" * 100_000 + b"\r\nx\r\n0\r\n\r\n",
    ]:
        if tail is not one:
            throw(stage, head + tail)
            continue
        answer = exchange(stage, head + tail)
        if b"7" not in answer.split(b"\r\n\r\n", 1)[-1]:
            raise Failure(f"a body in chunks of a byte: {answer[:200]!r}")
    both = head.replace(b"Connection", b"Content-Length: 3\r\nConnection")
    throw(stage, both + one)
    lives(stage)


def slow(stage: Stage, rng: random.Random) -> None:
    """Clients that send a byte now and then; others are answered meanwhile."""
    sockets = [socket.create_connection(("127.0.0.1", stage.server.http_port), timeout=20) for _ in range(N_SLOW)]
    try:
        data = request(sql("SELECT 1"), good_headers(stage))
        for round_ in range(5):
            for other in sockets:
                try:
                    other.sendall(data[round_ : round_ + 1])
                except OSError:
                    pass
            lives(stage)
        if not stage.is_served():
            raise Failure("Postgres' port is closed to others beside slow HTTP clients")
    finally:
        for other in sockets:
            other.close()


def slow_clients_are_sent_away(stage: Stage, rng: random.Random) -> None:
    data = request(sql("SELECT 1"), good_headers(stage))
    with socket.create_connection(("127.0.0.1", stage.server.http_port), timeout=20) as other:
        started = time.monotonic()
        try:
            while time.monotonic() - started < SLOW_LIMIT_S:
                other.sendall(data[:1] if time.monotonic() - started < 1 else b"x")
                other.settimeout(1.0)
                try:
                    other.recv(100)
                    return  # told, or cut off
                except TimeoutError:
                    pass
        except OSError:
            return
    raise Failure(f"a client that sends a byte a second is there after {SLOW_LIMIT_S} s")


def many(stage: Stage, rng: random.Random) -> None:
    """Hundreds of requests at once, from connections that are opened before any is answered."""
    sockets = [socket.create_connection(("127.0.0.1", stage.server.http_port), timeout=30) for _ in range(150)]
    try:
        for other in sockets:
            try:
                other.sendall(request(sql("SELECT count(*) FROM h"), good_headers(stage)))
            except ConnectionError:
                pass
        lives(stage)
        answers = [received(other) for other in sockets]
    except TimeoutError as error:
        raise Hung("one of 150 requests is not answered") from error
    finally:
        for other in sockets:
            other.close()
    # Too many may be refused, in words or by a closed connection.
    answered = [answer for answer in answers if status(answer) == 200]
    unexpected = [answer for answer in answers if answer and status(answer) not in (200, 503, 429)]
    if unexpected or len(answered) < 20:
        raise Failure(f"{len(answered)} of 150 requests are answered, {unexpected[:1]}")


def received(other: socket.socket) -> bytes:
    try:
        return other.recv(100)
    except ConnectionError:
        return b""


def big_result(stage: Stage, rng: random.Random) -> None:
    """A result that is larger than memory may be is streamed or refused."""
    before = stage.server.rss_bytes()
    cell = rng.choice([2_000, 60_000])
    text = f"SELECT repeat('x', {cell}) FROM generate_series(1, 99999) AS s(value)"
    peak = before
    with socket.create_connection(("127.0.0.1", stage.server.http_port), timeout=20) as other:
        other.sendall(request(sql(text), good_headers(stage)))
        ends = time.monotonic() + 8
        try:
            while time.monotonic() < ends and other.recv(1 << 20):
                peak = max(peak, stage.server.rss_bytes())
        except TimeoutError as error:
            raise Hung("no answer by HTTP to a large result") from error
        except OSError:
            pass
    if peak - before > 700 << 20:
        raise Failure(f"a result of {cell} bytes a row took {(peak - before) >> 20} MiB")
