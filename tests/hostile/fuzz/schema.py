"""Random tables: keys of one to three columns of any key type, values of any type, options that change how rows lie but
not what they are."""

import dataclasses
import random

from .values import BOOLEAN, DOUBLE, INT, KEYS, KINDS, REAL, TEXT, USUAL, Kind, literal


@dataclasses.dataclass(frozen=True)
class Column:
    name: str
    kind: Kind
    is_key: bool


@dataclasses.dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[Column, ...]
    options: str

    @property
    def key(self) -> list[Column]:
        return [column for column in self.columns if column.is_key]

    @property
    def values(self) -> list[Column]:
        return [column for column in self.columns if not column.is_key]

    def ddl(self, for_tarn: bool) -> str:
        columns = ", ".join(f"{column.name} {column.kind.name}" for column in self.columns)
        key = ", ".join(column.name for column in self.key)
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({key})){self.options if for_tarn else ''}"

    def row(self, rng: random.Random, with_known: bool) -> list[str]:
        return [
            "NULL"
            if not column.is_key and rng.random() < 0.2
            else literal(rng, column.kind, with_known and not column.is_key)
            for column in self.columns
        ]


def tables(rng: random.Random) -> list[Table]:
    return [table(rng, f"t{idx}") for idx in range(rng.randint(2, 3))]


def table(rng: random.Random, name: str) -> Table:
    key_kinds = [rng.choice(KEYS) for _ in range(rng.choice([1, 1, 2, 2, 3]))]
    if all(kind is BOOLEAN for kind in key_kinds):
        key_kinds[0] = INT
    # A key of few values makes a tiny table: half the tables get a counter in front.
    if rng.random() < 0.5:
        key_kinds[0] = INT
    columns = [Column(f"k{idx}", kind, True) for idx, kind in enumerate(key_kinds)]
    kinds = [rng.choice(USUAL if rng.random() < 0.5 else KINDS) for _ in range(rng.randint(2, 5))]
    columns += [Column(f"v{idx}", kind, False) for idx, kind in enumerate(kinds)]
    if rng.random() < 0.3:
        rng.shuffle(columns)
    options = []
    if rng.random() < 0.4:
        options += ["partitioning = 'hash'", f"tablets = {rng.randint(2, 4)}"]
    texts = [column.name for column in columns if column.kind is TEXT]
    if texts and rng.random() < 0.3:
        options.append(f"tokens = '{rng.choice(texts)}'")
    if rng.random() < 0.3:
        whole = [column.name for column in columns if column.kind is INT]
        # Equal floats may differ in their bytes: they have no bloom.
        others = [column.name for column in columns if column.kind not in (DOUBLE, REAL)]
        options.append(f"bloom = '{rng.choice(whole or others[:1])}'")
    return Table(name, tuple(columns), f" WITH ({', '.join(options)})" if options else "")
