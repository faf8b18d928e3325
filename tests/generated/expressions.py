"""Random expressions: trees of signatures with values, and columns where there are some, at their leaves."""

import dataclasses
import random

from signatures import Signature, Signatures
from values import TYPES, USUAL, literal, value


@dataclasses.dataclass(frozen=True)
class Node:
    """A call of a signature, or a leaf that is written as `text`."""

    type_: str
    text: str = ""
    signature: Signature | None = None
    children: tuple["Node", ...] = ()

    def sql(self) -> str:
        if self.signature is None:
            return self.text
        return self.signature.template.format(*(child.operand() for child in self.children))

    def operand(self) -> str:
        """Where it is an argument: which operator binds closer is not asked here."""
        return self.text if self.signature is None else f"({self.sql()})"


@dataclasses.dataclass(frozen=True)
class Column:
    text: str
    type_: str


class Expressions:
    def __init__(self, rng: random.Random, signatures: Signatures, columns: tuple[Column, ...] = ()):
        self.rng, self.signatures, self.columns = rng, signatures, columns

    def any(self, depth: int) -> Node:
        return self.of(self.rng.choice(TYPES if self.rng.random() < 0.5 else USUAL), depth)

    def of(self, type_: str, depth: int) -> Node:
        own = [column for column in self.columns if column.type_ == type_]
        if own and self.rng.random() < 0.45:
            return Node(type_, self.rng.choice(own).text)
        signature = self.signatures.pick(self.rng, type_) if depth > 0 and self.rng.random() < 0.9 else None
        if signature is None:
            return Node(type_, literal(self.rng, type_, value(self.rng, type_)))
        children = tuple(self.of(argument, depth - 1) for argument in signature.arguments)
        return Node(type_, signature=signature, children=children)
