"""COPY with data that is wrong early, late, hugely or slowly."""

import io
import random
import re
import time
from collections.abc import Iterator

import pyarrow as arrow
import wire as protocol
from stage import MEBIBYTE, Attack, Failure, Part, Stage
from wire import Answer, Wire

CHUNK = 8 << 10
MAX_GROWTH_BYTES = 768 * MEBIBYTE


class CopyIn(Part):
    """COPY of text, CSV and Arrow: a bad row early or late, huge fields, NUL, bytes that are no UTF-8, cancels; the
    error and the count are true."""

    name = "copy"
    statement_timeout_s = 20
    patience_s = 90.0
    flags = ("--copy-batch-rows", "1000")

    def prepare(self, stage: Stage) -> None:
        with stage.wire() as wire:
            wire.must("CREATE TABLE c (id int PRIMARY KEY, n int, v text)")

    def attacks(self, stage: Stage) -> Iterator[Attack]:
        kinds = [
            bad_row,
            bad_row,
            good_rows,
            wide_quoted_field,
            not_text,
            bad_row,
            mutated_arrow,
            cancelled,
            ends_early,
            bad_row,
            no_data,
            large_rows,
            in_transaction,
        ]
        while True:
            for kind in kinds:
                yield Attack(kind.__name__.replace("_", " "), kind)


def send_copy(
    stage: Stage, wire: Wire, sql: str, data: bytes, chunk: int = CHUNK, end: bytes = protocol.COPY_DONE
) -> Answer:
    """A whole COPY by the simple protocol. The server may answer with an error before all is sent; then the rest is
    sent all the same, as drivers do."""
    wire.send(protocol.query(sql))
    begun = wire.until_ready(stage.part.patience_s, until=b"GZ")
    if begun.error:
        if begun.status == "":
            wire.until_ready(stage.part.patience_s)
        return begun
    for at in range(0, len(data), chunk):
        wire.send(protocol.copy_data(data[at : at + chunk]), stage.part.patience_s)
    wire.send(end)
    answer = wire.until_ready(stage.part.patience_s)
    wire.must("SELECT 1")
    return answer


def fresh_range(rng: random.Random) -> int:
    return rng.randrange(0, 2_000) * 1_000_000


def count_from(wire: Wire, first: int) -> int:
    return int(wire.must(f"SELECT count(*) FROM c WHERE id >= {first} AND id < {first + 1_000_000}").scalar())


def clear(wire: Wire, first: int) -> None:
    wire.must(f"DELETE FROM c WHERE id >= {first} AND id < {first + 1_000_000}")


def row(kind: str, key: int) -> bytes:
    return (b"%d,%d,v%d\n" if kind == "csv" else b"%d\t%d\tv%d\n") % (key, key % 7, key)


def bad_line(rng: random.Random, kind: str) -> tuple[str, bytes, set[str]]:
    by = b"," if kind == "csv" else b"\t"
    choices: list[tuple[str, list[bytes], set[str]]] = [
        ("a word for a number", [b"abc", b"1", b"x"], {"22P02"}),
        ("a number that is too large", [b"99999999999999999999", b"1", b"x"], {"22003", "22P02"}),
        ("no key", [b"\\N" if kind == "text" else b"", b"1", b"x"], {"23502"}),
        ("a column too many", [b"1", b"1", b"x", b"y"], {"22P04"}),
        ("a column too few", [b"1", b"1"], {"22P04"}),
        ("no UTF-8", [b"5", b"1", b"caf\xe9"], {"22021", "22P02"}),
        ("a NUL", [b"5", b"1", b"a\0b"], {"22021", "22P02", "22P04"}),
    ]
    name, cells, states = rng.choice(choices)
    return name, by.join(cells) + b"\n", states


def bad_row(stage: Stage, rng: random.Random) -> None:
    kind, n_rows = rng.choice(["text", "csv"]), rng.choice([3, 500, 5_000, 30_000])
    where = rng.choice([0, n_rows // 2, n_rows - 1, rng.randrange(n_rows)])
    first = fresh_range(rng)
    name, bad, states = bad_line(rng, kind)
    lines = [row(kind, first + idx) for idx in range(n_rows)]
    lines.insert(where, bad)
    about = f"{kind}, {n_rows} rows, {name} in line {where + 1}"
    with stage.wire() as wire:
        clear(wire, first)
        answer = send_copy(
            stage, wire, f"COPY c FROM STDIN (FORMAT {kind})", b"".join(lines), rng.choice([100, CHUNK, 1 << 20])
        )
        if not answer.error:
            raise Failure(f"{about}: taken, {answer.tags}")
        error = answer.error
        if error.state not in states:
            raise Failure(f"{about}: {error}, want {states}")
        kept = count_from(wire, first)
        if kept > where:
            raise Failure(f"{about}: {kept} rows are there, more than came before")
        told = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", error.everything())]
        if kept and kept not in told:
            raise Failure(f"{about}: {kept} rows are committed, which the error does not say: {error.fields}")
        if where + 1 not in told:
            raise Failure(f"{about}: the error does not say the line: {error.fields}")
        clear(wire, first)


def good_rows(stage: Stage, rng: random.Random) -> None:
    """What is right arrives, cut into messages anywhere."""
    kind, n_rows, first = rng.choice(["text", "csv"]), rng.choice([1, 999, 1_000, 1_001, 8_000]), fresh_range(rng)
    data = b"".join(row(kind, first + idx) for idx in range(n_rows))
    with stage.wire() as wire:
        clear(wire, first)
        chunk = rng.choice([1, 7, 1_000]) if n_rows < 1_000 else rng.choice([100, CHUNK])
        answer = send_copy(stage, wire, f"COPY c FROM STDIN (FORMAT {kind})", data, chunk)
        if answer.tags != [f"COPY {n_rows}"] or count_from(wire, first) != n_rows:
            raise Failure(
                f"{n_rows} rows of {kind} in pieces of {chunk} bytes: {answer.error or answer.tags}, {count_from(wire, first)} are there"
            )
        clear(wire, first)


def wide_quoted_field(stage: Stage, rng: random.Random) -> None:
    """One quoted field of MBs in small messages, with quotes and line ends in it: four times the length takes about
    four times as long, not sixteen."""
    small = rng.choice([512 << 10, MEBIBYTE] if stage.settings.quick else [MEBIBYTE, 4 * MEBIBYTE])
    piece = rng.choice([b'abc""d\n', b"x", b",\n", b'""'])
    first = fresh_range(rng)
    seconds = [one_field(stage, first, piece * (n_bytes // len(piece))) for n_bytes in (small, 4 * small)]
    if seconds[1] > 10 * seconds[0] and seconds[1] > 3:
        times = f"{seconds[0]:.1f} and {seconds[1]:.1f} s"
        raise Failure(f"fields of {small} and {4 * small} bytes of {piece!r} in messages of {CHUNK} bytes take {times}")


def one_field(stage: Stage, key: int, content: bytes) -> float:
    """How long it takes to copy it in; it must be there as it was."""
    with stage.wire() as wire:
        clear(wire, key)
        wire.must("SET statement_timeout = '60s'")
        started = time.monotonic()
        answer = send_copy(stage, wire, "COPY c FROM STDIN (FORMAT csv)", b'%d,1,"' % key + content + b'"\n')
        seconds = time.monotonic() - started
        if answer.error and answer.error.state not in ("54000", "22P04", "53200"):
            raise Failure(f"{len(content)} bytes, {content[:8]!r}…: {answer.error}")
        if not answer.error:
            want = len(content.replace(b'""', b'"'))
            got = wire.must(f"SELECT octet_length(v) FROM c WHERE id = {key}").scalar()
            if got != str(want):
                raise Failure(f"{len(content)} bytes, {content[:8]!r}…: {got} are stored, want {want}")
        clear(wire, key)
    return seconds


def not_text(stage: Stage, rng: random.Random) -> None:
    sql = rng.choice(
        [
            "COPY c FROM STDIN",
            "COPY c FROM STDIN (FORMAT csv)",
            "COPY c FROM STDIN (FORMAT arrow)",
            "COPY c FROM STDIN (FORMAT csv, HEADER, QUOTE '''')",
        ]
    )
    data = rng.choice(
        [
            rng.randbytes(rng.choice([1, 100, 200_000])),
            b"\0" * 100_000,
            b'"' * 99_999,
            b"\\" * 99_999,
            b"\n" * 50_000,
            b",\n" * 50_000,
            b"\t" * 100_000,
            b"1\t" * 300_000,
        ]
    )
    with stage.wire() as wire:
        answer = send_copy(stage, wire, sql, data, rng.choice([10, CHUNK]) if len(data) < 1_000 else CHUNK)
        if answer.error and len(answer.error.state) != 5:
            raise Failure(f"no SQLSTATE: {answer.error}")
        wire.must("DELETE FROM c WHERE id < 100000")


def mutated_arrow(stage: Stage, rng: random.Random) -> None:
    """Arrow streams with bytes changed: an error, or rows; no panic."""
    first = fresh_range(rng)
    good = arrow_stream(first, 200)
    with stage.wire() as wire:
        clear(wire, first)
        answer = send_copy(stage, wire, "COPY c FROM STDIN (FORMAT arrow)", good)
        if answer.error or count_from(wire, first) != 200:
            raise Failure(f"a good stream: {answer.error}, {count_from(wire, first)} rows")
        for _ in range(12):
            twisted = bytearray(good)
            for _ in range(rng.randint(1, 6)):
                at = rng.choice([rng.randrange(len(twisted)), rng.randrange(min(700, len(twisted)))])
                twisted[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, twisted[at] ^ (1 << rng.randrange(8))])
            if rng.random() < 0.3:
                del twisted[rng.randrange(len(twisted)) :]
            clear(wire, first)
            send_copy(stage, wire, "COPY c FROM STDIN (FORMAT arrow)", bytes(twisted))
        wire.must("DELETE FROM c")


def arrow_stream(first: int, n_rows: int) -> bytes:
    keys = list(range(first, first + n_rows))
    table = arrow.table(
        {
            "id": arrow.array(keys, arrow.int32()),
            "n": arrow.array([None if key % 3 == 0 else key % 7 for key in keys], arrow.int32()),
            "v": arrow.array([f"v{key}" for key in keys], arrow.string()),
        }
    )
    out = io.BytesIO()
    with arrow.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=64)
    return out.getvalue()


def cancelled(stage: Stage, rng: random.Random) -> None:
    """A COPY that is cancelled: 57014 or 40003, and what is there is what the error says."""
    first = fresh_range(rng)
    with stage.wire() as wire:
        clear(wire, first)
        wire.send(protocol.query("COPY c FROM STDIN"))
        wire.until_ready(stage.part.patience_s, until=b"GZ")
        n_rows = rng.choice([10, 3_500])
        for idx in range(n_rows):
            wire.send(protocol.copy_data(row("text", first + idx)))
        wire.cancel(stage.server.port)
        time.sleep(rng.choice([0, 0.05, 0.3]))
        for idx in range(n_rows, n_rows + 500):
            wire.send(protocol.copy_data(row("text", first + idx)))
        wire.send(protocol.COPY_DONE)
        answer = wire.until_ready(stage.part.patience_s)
        kept = count_from(wire, first)
        if not answer.error:
            if kept != n_rows + 500:
                raise Failure(f"COPY says {answer.tags}, {kept} of {n_rows + 500} rows are there")
        elif answer.error.state == "57014" and kept and str(kept) not in answer.error.everything().replace(",", ""):
            raise Failure(
                f"57014 for a COPY of which {kept} rows are committed, which is not said: {answer.error.fields}"
            )
        elif answer.error.state not in ("57014", "40003"):
            raise Failure(f"cancelled: {answer.error}")
        clear(wire, first)


def ends_early(stage: Stage, rng: random.Random) -> None:
    """The client gives up, or sends something else in the middle."""
    first = fresh_range(rng)
    with stage.wire() as wire:
        clear(wire, first)
        data = b"".join(row("text", first + idx) for idx in range(rng.choice([1, 100, 3_000])))
        end = rng.choice(
            [
                protocol.copy_fail("enough"),
                protocol.copy_fail("x" * 100_000),
                protocol.query("SELECT 1") + protocol.copy_fail("x"),
                protocol.SYNC + protocol.FLUSH + protocol.copy_fail("y"),
            ]
        )
        wire.send(protocol.query("COPY c FROM STDIN"))
        wire.until_ready(stage.part.patience_s, until=b"GZ")
        wire.send(protocol.copy_data(data) + end)
        answer = wire.until_ready(stage.part.patience_s)
        if not answer.error:
            raise Failure("a COPY that the client gave up is taken")
    with stage.wire() as wire:
        clear(wire, first)


def no_data(stage: Stage, rng: random.Random) -> None:
    wires = [stage.wire() for _ in range(20)]
    try:
        for wire in wires:
            wire.send(protocol.query("COPY c FROM STDIN"))
        with stage.wire() as other:
            other.must("INSERT INTO c VALUES (-1, 1, 'x') ON CONFLICT DO NOTHING")
    finally:
        for wire in wires:
            wire.close()


def large_rows(stage: Stage, rng: random.Random) -> None:
    """Rows of tens of kB: batches are cut by bytes, too, and memory is bounded."""
    first, width = fresh_range(rng), rng.choice([10_000, 40_000])
    n_rows = (64 if stage.settings.quick else 400) * MEBIBYTE // width
    stage.server.peak_rss_bytes = before = stage.server.rss_bytes()
    with stage.wire() as wire:
        clear(wire, first)
        value = b"y" * width
        data = b"".join(b"%d\t1\t%s\n" % (first + idx, value) for idx in range(n_rows))
        answer = send_copy(stage, wire, "COPY c FROM STDIN", data, 1 << 16)
        peak = stage.server.peak_rss_bytes
        stage.peak_rss_bytes = max(stage.peak_rss_bytes, peak)
        if answer.error and answer.error.state not in ("53200", "53400", "57014", "40003"):
            raise Failure(f"{n_rows} rows of {width} bytes: {answer.error}")
        if peak - before > MAX_GROWTH_BYTES + 2 * len(data):
            raise Failure(
                f"{len(data) // MEBIBYTE} MiB in rows of {width} bytes took {(peak - before) // MEBIBYTE} MiB"
            )
        clear(wire, first)


def in_transaction(stage: Stage, rng: random.Random) -> None:
    """A COPY in a transaction that fails leaves nothing, and the transaction says so."""
    first = fresh_range(rng)
    with stage.wire() as wire:
        clear(wire, first)
        wire.must("BEGIN")
        lines = [row("text", first + idx) for idx in range(3_000)]
        lines.insert(rng.randrange(3_000), b"abc\t1\tx\n")
        wire.send(protocol.query("COPY c FROM STDIN"))
        wire.until_ready(stage.part.patience_s, until=b"GZ")
        wire.send(protocol.copy_data(b"".join(lines)) + protocol.COPY_DONE)
        answer = wire.until_ready(stage.part.patience_s)
        if not answer.error or answer.status != "E":
            raise Failure(f"a failed COPY in a transaction: {answer.error}, status {answer.status!r}")
        wire.must("ROLLBACK")
        kept = count_from(wire, first)
        if kept:
            raise Failure(f"{kept} rows of a COPY that was rolled back")
