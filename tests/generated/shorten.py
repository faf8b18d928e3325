"""A shorter statement that differs as well."""

import dataclasses
import time

from expressions import Node
from queries import Query
from sides import NOT_COMPARED, SAME_STATE, Compared, Sides
from values import quoted

MAX_SECONDS = 5.0


def shorter(sides: Sides, tree: Node, compared: Compared) -> tuple[Compared, str]:
    """The smallest subtree that differs alone, with values of PostgreSQL in place of its calls; and by which signature. It is no difference
    if all that differs is what is computed."""
    deadline = time.monotonic() + MAX_SECONDS
    while time.monotonic() < deadline:
        for child in tree.children:
            found = sides.compare(f"SELECT {child.sql()}")
            if child.signature is not None and found.is_fault:
                tree, compared = child, found
                break
        else:
            break
    if is_not_computed(sides, tree, compared):
        return dataclasses.replace(compared, outcome=NOT_COMPARED), ""
    for idx, child in enumerate(tree.children):
        if child.signature is not None and time.monotonic() < deadline:
            answer = sides.postgres.ask(f"SELECT ({child.sql()})::{child.type_}::text")
            if answer.error or not answer.rows:
                continue
            text = answer.rows[0][0]
            leaf = Node(child.type_, f"NULL::{child.type_}" if text is None else f"{quoted(text)}::{child.type_}")
            simpler = Node(tree.type_, "", tree.signature, tree.children[:idx] + (leaf,) + tree.children[idx + 1 :])
            found = sides.compare(f"SELECT {simpler.sql()}")
            if found.is_fault:
                tree, compared = simpler, found
    return compared, tree.signature.name if tree.signature else f"literal {tree.type_}"


def is_not_computed(sides: Sides, tree: Node, compared: Compared) -> bool:
    """Both refuse an argument alone, for the same reason; in this expression one of them does not compute it: beside a NULL, what else is an
    argument of a strict function changes nothing. Which parts are computed is left to a planner, in PostgreSQL's words, too."""
    error = compared.postgres.error or compared.tarn.error
    if error is None or (compared.postgres.error and compared.tarn.error):
        return False
    parts = (sides.compare(f"SELECT {child.sql()}") for child in tree.children if child.signature is not None)
    return any(part.outcome == SAME_STATE and part.postgres.error.state == error.state for part in parts)


def shorter_query(sides: Sides, query: Query, compared: Compared) -> tuple[Compared, str]:
    """Without the parts that it differs without; by the errors, or as a query."""
    deadline = time.monotonic() + MAX_SECONDS
    goes_on = True
    while goes_on and time.monotonic() < deadline:
        goes_on = False
        for simpler in query.simpler():
            found = sides.compare(simpler.sql(), is_of_rows=True)
            if found.is_fault and found.outcome == compared.outcome:
                query, compared, goes_on = simpler, found, True
                break
    ours = compared.tarn.error
    return compared, f"query: {str(ours)[:60] if ours else compared.outcome}: {compared.sql[:60]}"
