"""Every kind of file of a stopped server: flipped, cut, zeroed, swapped, old, gone. Never a wrong answer, nothing
destroyed."""

import pathlib
import random
import re
import shutil
from collections.abc import Iterator

from server import DidNotStart, Options, Server
from stage import Attack, Failure, Part, Stage
from wire import Hung, Left, ServerError, Wire

from . import stored
from .stored import Stored

# Kinds of files by their path in the data folder. Locks and RocksDB's own text log hold nothing.
KINDS: list[tuple[str, str]] = [
    ("log segment", r"log/[^/]+\.seg$"),
    ("log format", r"log/FORMAT$"),
    ("log spare", r"log/[^/]+\.tmp$"),
    ("rows SST", r"rows/.*\.sst$"),
    ("rows manifest", r"rows/.*MANIFEST-\d+$"),
    ("rows current", r"rows/.*/(CURRENT|IDENTITY)$"),
    ("rows options", r"rows/.*OPTIONS-\d+$"),
    ("metastore log", r"meta/log-[^/]*$"),
    ("metastore pack", r"meta/.*(pack|checkpoint|ckpt|piece)[^/]*$"),
    ("parquet", r"lake/.*\.parquet$"),
    ("cache", r"cache/.*/[0-9a-f]{8,}$"),
    ("mark", r"^(LAKE|METASTORE|VERSION|ID)[^/]*$"),
    ("other", r"."),
]
SKIPPED = re.compile(r"(^|/)(LOCK|lock|LOG|LOG\.old\.\d+)$|rows/.*\.log$")
# Lake files and metadata are what most of a server's bytes are: they are tried more often.
WEIGHTS = {"parquet": 4, "metastore log": 3, "log segment": 3, "rows SST": 2}
# Of the log (docs/formats/raftlog.md): a frame begins on a block, with its magic.
LOG_BLOCK_BYTES, FRAME = 4096, b"TFRM"
TABLES = ("plain", "pair", "events", "hot", "late")
FOLDERS = ["meta", "log", "rows", "lake", "cache"]


class Files(Part):
    """Each kind of file flipped, cut, zeroed, swapped, old or gone: what is asked then is right, or refused by the
    file's name; put back, all is there."""

    name = "files"
    has_server = False
    share = 3.0

    def __init__(self) -> None:
        self.stored: Stored | None = None

    def prepare(self, stage: Stage) -> None:
        self.stored = stored.build(stage.settings.tarn, stage.folder / "stored", stage.settings.seed)

    def attacks(self, stage: Stage) -> Iterator[Attack]:
        yield Attack("nothing is damaged", undamaged)
        order = random.Random(f"{stage.settings.seed}/files")
        while True:
            turn = [one_file] * 12 + [whole_folder] * 3
            order.shuffle(turn)
            for kind in turn:
                yield Attack(kind.__name__.replace("_", " "), kind)


def the_stored(stage: Stage) -> Stored:
    assert isinstance(stage.part, Files) and stage.part.stored is not None
    return stage.part.stored


def kind_of(path: str) -> str:
    return next(kind for kind, pattern in KINDS if re.search(pattern, path))


def all_files(folder: pathlib.Path) -> list[str]:
    paths = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in paths if not SKIPPED.search(path)]


def undamaged(stage: Stage, rng: random.Random) -> None:
    for state in ("killed", "stopped"):
        trial = Trial(stage, state)
        trial.start()
        trial.ask("nothing is damaged", (), is_first=True)
        trial.work()
        trial.ask("nothing is damaged", (), is_first=True)
        trial.server.kill()


class Trial:
    """A damaged copy of the data folder and a server on it."""

    def __init__(self, stage: Stage, state: str):
        self.stage, self.state = stage, state
        self.source = the_stored(stage).folder / state
        folder = stage.folder / "trial"
        if folder.exists():
            shutil.rmtree(folder)
        self.server = Server(stage.settings.tarn, folder, Options(stored.FLAGS, stage.settings.memory_bytes))
        stored.copy_folder(self.source, self.server.data)

    def forget_caches(self) -> None:
        """What was kept near hides what is damaged."""
        for name in ("pages", "fragments"):
            shutil.rmtree(self.server.data / "cache" / name, ignore_errors=True)

    def start(self) -> None:
        self.server.start()

    def ask(self, about: str, names: tuple[str, ...], is_first: bool) -> bool:
        """Is everything answered? Wrong answers, and errors that do not say what is damaged, fail."""
        questions = the_stored(self.stage).questions
        try:
            with Wire(self.server.port, 60) as wire:
                wrong, errors = stored.wrong_answers(wire, questions)
        except (Left, Hung, ServerError) as error:
            raise Failure(f"{about}: {error}; the server {self.server.death()}") from error
        finally:
            self.stage.peak_rss_bytes = max(self.stage.peak_rss_bytes, self.server.peak_rss_bytes)
        panics = self.server.panics()
        when = "" if is_first else " after a delivery and a compaction"
        if wrong:
            raise Failure(f"{about}{when}: WRONG ANSWER: {wrong[0][:400]}")
        if panics:
            raise Failure(f"{about}{when}: panic: {panics[0][-300:]}")
        if errors and not names:
            raise Failure(f"{about}{when}: {errors[0][0].sql}: {errors[0][1][:300]}")
        for question, text in errors:
            if not is_named(text, names, question.table):
                raise Failure(f"{about}{when}: the error names neither file nor table: {text[:400]}")
        return not errors

    def work(self) -> None:
        """Deliveries and compactions; they may fail, they may not make wrong what was right."""
        with Wire(self.server.port, 60) as wire:
            for table in TABLES:
                for procedure in ("deliver", "compact"):
                    wire.ask(f"CALL tarn.{procedure}('{table}')", 60)

    def put_back(self, path: str) -> None:
        """The right file or folder again."""
        source, target = self.source / path, self.server.data / path
        if source.is_dir():
            stored.copy_folder(source, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def is_named(text: str, names: tuple[str, ...], table: str = "\0") -> bool:
    return any(name in text for name in names) or re.search(rf'["`\' ]{re.escape(table)}["`\' ]', text) is not None


def one_file(stage: Stage, rng: random.Random) -> None:
    trial = Trial(stage, rng.choice(["killed", "stopped"]))
    by_kind: dict[str, list[str]] = {}
    for path in all_files(trial.server.data):
        by_kind.setdefault(kind_of(path), []).append(path)
    kinds = sorted(by_kind)
    kind = rng.choices(kinds, [WEIGHTS.get(kind, 1) for kind in kinds])[0]
    path = rng.choice(by_kind[kind])
    what = damage(rng, trial, path, by_kind[kind], the_stored(stage).folder / "old")
    if what is None or (kind == "log segment" and is_never_written_tail(trial, path, by_kind[kind])):
        return
    stage.note(f"{kind}: {what.split(' ')[0].rstrip(':')}")
    if kind != "cache" and rng.random() < 0.7:
        trial.forget_caches()
        what += ", without caches"
    file = trial.server.data / path
    names = (file.name, str(file.parent)) + ((file.stem,) if len(file.stem) > 4 else ())
    judge(stage, rng, trial, path, f"{kind} {path} of the {trial.state} server, {what}", names)


def is_never_written_tail(trial: Trial, path: str, segments: list[str]) -> bool:
    """Whether the newest segment of a killed server only lost its end, or only its last frame is damaged: nothing tells
    that from an end that was never written, or only in part (docs/operations.md, "Known, and not closed")."""
    if trial.state != "killed" or path != max(segments) or not (trial.server.data / path).exists():
        return False
    whole = (trial.source / path).read_bytes()
    right, left = whole.rstrip(b"\0"), (trial.server.data / path).read_bytes().rstrip(b"\0")
    if len(left) < len(right) and right.startswith(left):
        return True
    frames = [at for at in range(0, len(right), LOG_BLOCK_BYTES) if whole[at : at + len(FRAME)] == FRAME]
    last = frames[-1] if frames else len(right)
    return left[:last] == right[:last] and left[last : len(right)] != right[last:]


def whole_folder(stage: Stage, rng: random.Random) -> None:
    """A folder restored from an older backup, emptied, or gone."""
    trial = Trial(stage, rng.choice(["killed", "stopped"]))
    name, how = rng.choice(FOLDERS), rng.choice(["old", "old", "gone", "empty"])
    target = trial.server.data / name
    shutil.rmtree(target)
    if how == "old":
        shutil.copytree(the_stored(stage).folder / "old" / name, target)
    elif how == "empty":
        target.mkdir()
    stage.note(f"folder {name}: {how}")
    names = (str(target), "metastore", "log", "rows", "lake", "row engine")
    judge(stage, rng, trial, name, f"folder {name} of the {trial.state} server is {how}", names)


def judge(stage: Stage, rng: random.Random, trial: Trial, path: str, about: str, names: tuple[str, ...]) -> None:
    """Starts on the damage; asks; works and asks again, or puts the right file back and asks whether all is there."""
    try:
        try:
            trial.start()
            was_right = trial.ask(about, names, is_first=True)
        except DidNotStart as refused:
            was_right = False
            if "panicked" in str(refused) or "took too long" in str(refused):
                raise Failure(f"{about}: the start {str(refused)[:400]}") from refused
            if not is_named(str(refused), names) and not any(is_named(str(refused), (), table) for table in TABLES):
                raise Failure(f"{about}: refused, but not by the file's name: {last_line(str(refused))}") from refused
        if trial.server.is_alive() and (was_right or rng.random() < 0.5):
            trial.work()
            trial.ask(about, names, is_first=False)
        elif not was_right:
            trial.server.kill()
            trial.put_back(path)
            try:
                trial.start()
            except DidNotStart as refused:
                raise Failure(f"{about}; put back: DESTROYED? {last_line(str(refused))}") from refused
            trial.ask(f"{about}; put back", (), is_first=True)
    finally:
        trial.server.kill()


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-3:])[-500:]


def damage(rng: random.Random, trial: Trial, path: str, siblings: list[str], old: pathlib.Path) -> str | None:
    """Does something to the file and says what; `None` if that changes nothing."""
    file = trial.server.data / path
    data = bytearray(file.read_bytes())
    before = bytes(data)
    how = rng.choice(["flip", "flip", "flip", "cut", "zero", "swap", "old", "gone", "grow"])
    said = how
    if how == "flip" and data:
        # Files that take their space ahead are zeros at their end: a flip there is another damage, and rarely of
        # interest.
        used = len(before.rstrip(b"\0")) or len(data)
        at, bit = rng.randrange(used if rng.random() < 0.95 else len(data)), 1 << rng.randrange(8)
        data[at] ^= bit
        said = f"flip of bit {bit:#x} of byte {at} of {len(data)}"
    elif how == "cut":
        size = rng.choice([0, 1, 16, 17, len(data) // 2, max(0, len(data) - 1), rng.randrange(len(data) + 1)])
        del data[size:]
        said = f"cut to {size} of {len(before)} bytes"
    elif how == "zero" and data:
        at = rng.randrange(len(before.rstrip(b"\0")) or 1)
        size = min(rng.choice([1, 100, 4096, len(data)]), len(data) - at)
        data[at : at + size] = bytes(size)
        said = f"zero {size} bytes at {at}"
    elif how == "grow":
        data += rng.randbytes(rng.choice([1, 100, 5000]))
        said = f"grow by {len(data) - len(before)} bytes"
    elif how == "swap":
        others = [other for other in siblings if other != path]
        if not others:
            return None
        other = rng.choice(others)
        data = bytearray((trial.server.data / other).read_bytes())
        said = f"swap: has the content of {other}"
    elif how == "old":
        if not (old / path).exists():
            return None
        data = bytearray((old / path).read_bytes())
        said = "old: an older copy"
    elif how == "gone":
        file.unlink()
        return "gone"
    if bytes(data) == before:
        return None
    file.write_bytes(data)
    return said
