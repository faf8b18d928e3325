"""Postgres' protocol by hand: for saying what no driver would say, and for never waiting longer than a deadline.

A `Wire` is one connection. `ask` sends a text and gathers everything up to ReadyForQuery; whatever goes wrong on the
way is an exception
that says whether the server hung, or left.
"""

import dataclasses
import socket
import struct
import time
from collections.abc import Callable


class Hung(Exception):
    """The server did not answer in time."""


class Left(Exception):
    """The server closed the connection."""


class ServerError(Exception):
    """ErrorResponse: its fields by their letter."""

    def __init__(self, fields: dict[str, str]):
        self.fields = fields
        super().__init__(f"{self.state}: {fields.get('M', '')[:300]}")

    @property
    def state(self) -> str:
        return self.fields.get("C", "")

    def everything(self) -> str:
        return " ".join(self.fields.values())


@dataclasses.dataclass
class Answer:
    """What one text was answered with, up to ReadyForQuery."""

    rows: list[list[str | None]] = dataclasses.field(default_factory=list)
    n_rows: int = 0
    tags: list[str] = dataclasses.field(default_factory=list)
    errors: list[ServerError] = dataclasses.field(default_factory=list)
    # Types of the last result's columns, by their OIDs, and their names.
    oids: list[int] = dataclasses.field(default_factory=list)
    names: list[str] = dataclasses.field(default_factory=list)
    # What a COPY TO STDOUT gave.
    copied: bytearray = dataclasses.field(default_factory=bytearray)
    status: str = ""
    seconds: float = 0.0

    @property
    def error(self) -> ServerError | None:
        return self.errors[0] if self.errors else None

    def scalar(self) -> str | None:
        if self.error:
            raise self.error
        return self.rows[0][0] if self.rows else None


# Rows kept of one answer, unless a `Wire` says otherwise; the others are counted.
MAX_ROWS_KEPT = 20_000
# What is kept of a COPY TO STDOUT; the rest is read and dropped.
MAX_COPIED_BYTES = 64 << 20


def message(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + struct.pack(">i", len(payload) + 4) + payload


def startup(parameters: dict[str, str] | None = None, version: int = 196608) -> bytes:
    words = parameters if parameters is not None else {"user": "tarn", "database": "tarn"}
    body = b"".join(name.encode() + b"\0" + value.encode() + b"\0" for name, value in words.items()) + b"\0"
    payload = struct.pack(">i", version) + body
    return struct.pack(">i", len(payload) + 4) + payload


def query(sql: str | bytes) -> bytes:
    return message(b"Q", as_bytes(sql) + b"\0")


def parse(sql: str | bytes, name: bytes = b"", oids: tuple[int, ...] = ()) -> bytes:
    types = struct.pack(f">h{len(oids)}i", len(oids), *oids)
    return message(b"P", name + b"\0" + as_bytes(sql) + b"\0" + types)


def bind(
    parameters: tuple[bytes | None, ...] = (), portal: bytes = b"", name: bytes = b"", binary: bool = False
) -> bytes:
    values = b"".join(struct.pack(">i", -1) if v is None else struct.pack(">i", len(v)) + v for v in parameters)
    formats = struct.pack(">hh", 1, int(binary))
    return message(
        b"B",
        portal + b"\0" + name + b"\0" + formats + struct.pack(">h", len(parameters)) + values + struct.pack(">h", 0),
    )


def describe(kind: bytes = b"P", name: bytes = b"") -> bytes:
    return message(b"D", kind + name + b"\0")


def execute(portal: bytes = b"", max_rows: int = 0) -> bytes:
    return message(b"E", portal + b"\0" + struct.pack(">i", max_rows))


SYNC = message(b"S")
FLUSH = message(b"H")
TERMINATE = message(b"X")
COPY_DONE = message(b"c")


def copy_data(data: bytes) -> bytes:
    return message(b"d", data)


def copy_fail(reason: str) -> bytes:
    return message(b"f", reason.encode() + b"\0")


def extended(sql: str | bytes, parameters: tuple[bytes | None, ...] = ()) -> bytes:
    return parse(sql) + bind(parameters) + describe() + execute() + SYNC


def as_bytes(text: str | bytes) -> bytes:
    return text.encode(errors="surrogateescape") if isinstance(text, str) else text


def error_fields(payload: bytes) -> dict[str, str]:
    parts = [part for part in payload.split(b"\0") if part]
    return {chr(part[0]): part[1:].decode(errors="replace") for part in parts}


class Wire:
    def __init__(
        self,
        port: int,
        timeout_s: float = 20.0,
        greet: bool = True,
        database: str = "tarn",
        settings: dict[str, str] | None = None,
    ):
        """Connects and, if `greet`, waits until statements can be sent. `settings` go with the startup packet."""
        self.timeout_s = timeout_s
        self.max_rows_kept = MAX_ROWS_KEPT
        self.buffer = bytearray()
        self.backend = (0, 0)
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        except TimeoutError as error:
            raise Hung("no connection is accepted") from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if greet:
            try:
                self.send(startup({"user": "tarn", "database": database, **(settings or {})}))
                answer = self.until_ready(timeout_s)
                if answer.error:
                    raise answer.error
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes, timeout_s: float | None = None) -> None:
        self.socket.settimeout(timeout_s or self.timeout_s)
        try:
            self.socket.sendall(data)
        except TimeoutError as error:
            raise Hung("the server does not read what it is sent") from error
        except OSError as error:
            raise Left(str(error)) from error

    def _fill(self, n_bytes: int, deadline: float) -> None:
        while len(self.buffer) < n_bytes:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Hung("no answer")
            self.socket.settimeout(left)
            try:
                chunk = self.socket.recv(1 << 18)
            except TimeoutError as error:
                raise Hung("no answer") from error
            except OSError as error:
                raise Left(str(error)) from error
            if not chunk:
                raise Left("server closed the connection")
            self.buffer += chunk

    def receive(self, deadline: float) -> tuple[bytes, bytes]:
        """One message: its letter and payload. `deadline` is by `time.monotonic`."""
        self._fill(5, deadline)
        size = struct.unpack_from(">i", self.buffer, 1)[0] + 1
        self._fill(size, deadline)
        kind, payload = bytes(self.buffer[:1]), bytes(self.buffer[5:size])
        del self.buffer[:size]
        return kind, payload

    def until_ready(
        self, timeout_s: float, until: bytes = b"Z", data: Callable[[], bytes | None] = lambda: None
    ) -> Answer:
        """Everything up to one of the letters of `until`. `data` is asked for what a COPY reads; nothing ends it."""
        answer, started = Answer(), time.monotonic()
        while True:
            kind, payload = self.receive(started + timeout_s)
            if kind == b"E":
                answer.errors.append(ServerError(error_fields(payload)))
            elif kind == b"D":
                answer.n_rows += 1
                if answer.n_rows <= self.max_rows_kept:
                    answer.rows.append(cells(payload))
            elif kind == b"T":
                columns = described(payload)
                answer.names, answer.oids = [name for name, _ in columns], [oid for _, oid in columns]
            elif kind == b"d" and len(answer.copied) < MAX_COPIED_BYTES:
                answer.copied += payload
            elif kind == b"C":
                answer.tags.append(payload.rstrip(b"\0").decode(errors="replace"))
            elif kind == b"K":
                self.backend = struct.unpack(">ii", payload[:8])
            elif kind == b"Z":
                answer.status = payload.decode()
            if kind in (b"G", b"W") and kind not in until:
                given = data()
                self.send(copy_fail("no data") if given is None else copy_data(given) + COPY_DONE)
            if kind in until or (kind == b"E" and answer.errors[-1].fields.get("S") == "FATAL"):
                answer.seconds = time.monotonic() - started
                return answer

    def ask(
        self, sql: str | bytes, timeout_s: float | None = None, data: Callable[[], bytes | None] = lambda: None
    ) -> Answer:
        """By the simple protocol. A statement's error is in the answer, not raised."""
        self.send(query(sql), timeout_s)
        return self.until_ready(timeout_s or self.timeout_s, data=data)

    def ask_extended(
        self, sql: str | bytes, parameters: tuple[bytes | None, ...] = (), timeout_s: float | None = None
    ) -> Answer:
        self.send(extended(sql, parameters), timeout_s)
        return self.until_ready(timeout_s or self.timeout_s)

    def must(self, sql: str, timeout_s: float | None = None) -> Answer:
        """A statement that has to succeed."""
        answer = self.ask(sql, timeout_s)
        if answer.error:
            raise answer.error
        return answer

    def cancel(self, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=self.timeout_s) as other:
            other.sendall(struct.pack(">iiii", 16, 80877102, *self.backend))


def described(payload: bytes) -> list[tuple[str, int]]:
    """Names and types of a RowDescription's columns."""
    (count,) = struct.unpack_from(">h", payload)
    at, columns = 2, []
    for _ in range(count):
        end = payload.index(0, at)
        columns.append((payload[at:end].decode(errors="replace"), struct.unpack_from(">i", payload, end + 7)[0]))
        at = end + 19
    return columns


def cells(payload: bytes) -> list[str | None]:
    (count,) = struct.unpack_from(">h", payload)
    at, out = 2, []
    for _ in range(count):
        (size,) = struct.unpack_from(">i", payload, at)
        at += 4
        if size < 0:
            out.append(None)
        else:
            out.append(payload[at : at + size].decode(errors="replace"))
            at += size
    return out
