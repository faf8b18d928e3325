"""A shorter script that shows the same: steps are left out, half of them at first, one by one at last."""

import time
from collections.abc import Callable

from .steps import Step


def shorter(steps: list[Step], shows_it: Callable[[list[Step]], bool], seconds: float) -> list[Step]:
    """The last step is what differs and stays, tables are made first and stay. As short as it gets in the time."""
    deadline = time.monotonic() + seconds
    fixed = [step for step in steps if step.kind == "create"]
    middle, last = [step for step in steps[:-1] if step.kind != "create"], steps[-1]
    # Questions change nothing, mostly: try without all of them first.
    quiet = [step for step in middle if step.kind not in ("query", "tables")]
    if len(quiet) < len(middle) and shows_it(fixed + quiet + [last]):
        middle = quiet
    size = max(1, len(middle) // 2)
    while middle and time.monotonic() < deadline:
        at, n_left_out = 0, 0
        while at < len(middle) and time.monotonic() < deadline:
            without = middle[:at] + middle[at + size :]
            if shows_it(fixed + without + [last]):
                middle = without
                n_left_out += 1
            else:
                at += size
        if size == 1 and not n_left_out:
            break
        size = max(1, size // 2)
    return fixed + middle + [last]
