"""What do the clients' scripts share? Which server they talk to, and the steps that Tarn refuses for now.

A script is written for PostgreSQL and passes there whole (`run.py --postgres`). What Tarn does not do yet stands in it as `waits_for`: it must be refused,
with that SQLSTATE, so that a script notices when the step begins to work, and is told when it does something else.
"""

import contextlib
import os

PORT = os.environ["TARN_PORT"]
HOST = os.environ.get("PGHOST", "127.0.0.1")
USER = "tarn"
DATABASE = "tarn"
URL = f"postgresql://{USER}@{HOST}:{PORT}/{DATABASE}"

# Set by run.py --postgres: the server is PostgreSQL, and nothing is waited for.
IS_POSTGRES = os.environ.get("TARN_TEST_POSTGRES") == "yes"


def sqlstate(error):
    """The SQLSTATE of an exception, or of the one below it: each driver has its own name for it."""
    while error is not None:
        for name in ("sqlstate", "pgcode"):
            for at in (error, getattr(error, "orig", None)):
                if isinstance(found := getattr(at, name, None), str):
                    return found
        error = error.__cause__
    return None


@contextlib.contextmanager
def waits_for(what, state):
    """A step that Tarn refuses with `state` until it has `what`; on PostgreSQL it must pass."""
    if IS_POSTGRES:
        yield
        return
    try:
        yield
    except Exception as error:
        if sqlstate(error) != state:
            raise AssertionError(f"{what}: {sqlstate(error)}, want {state}: {error}") from error
        return
    raise AssertionError(f"{what}: works now, so it waits for nothing any more")


def refused(state, does):
    """Errors have the SQLSTATE by which programs decide."""
    try:
        does()
    except Exception as error:
        assert sqlstate(error) == state, f"{sqlstate(error)}, want {state}: {error}"
        return error
    raise AssertionError(f"is not refused with {state}")
