"""Where PostgreSQL's regress files come from: Debian's source package, fetched once and kept in the cache.

The package is asked for in this machine's own package sources, turned into sources of source code in a private
configuration: nothing of the system changes, and no root is needed. Only `sql` and `data` of the tests are unpacked.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

# The ledger speaks of this version's files.
MAJOR = 15
PACKAGE = f"postgresql-{MAJOR}"
WANTED = re.compile(r"[^/]+/src/test/regress/((?:sql|data)/[^/]+)")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tarn" / "postgres-regress"
LISTS = pathlib.Path("/etc/apt")
PATIENCE_S = 600


class Missing(Exception):
    """The files are not here and cannot be had. The text says why."""


def regress_files(version: str) -> pathlib.Path:
    """A folder with `sql` and `data`: of `version` (as `15.18`) if it can be had, else of another of the same major."""
    for folder in [CACHE / version, *sorted(CACHE.glob(f"{MAJOR}.*"), reverse=True)]:
        if (folder / "sql").is_dir():
            return folder
    if shutil.which("apt-get") is None:
        raise Missing(f"the source package {PACKAGE} comes by apt-get, which is not here")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unpacking-", dir=CACHE) as scratch:
        archive = downloaded(pathlib.Path(scratch), version)
        found = CACHE / re.search(r"_([0-9.]+)\.orig\.", archive.name).group(1)
        unpack(archive, pathlib.Path(scratch) / "regress")
        (pathlib.Path(scratch) / "regress").rename(found)
    return found


def downloaded(scratch: pathlib.Path, version: str) -> pathlib.Path:
    for folder in ("sources", "state/lists/partial", "cache/archives/partial", "package"):
        (scratch / folder).mkdir(parents=True)
    write_sources(scratch / "sources")
    options = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": scratch / "sources",
        "Dir::State": scratch / "state",
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": scratch / "cache",
    }
    if os.geteuid() == 0:
        options["APT::Sandbox::User"] = "root"  # apt's own user cannot reach the cache of root
    flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    # A source that cannot be had (a vendor's without source code) is no reason to do without the others.
    said = run(["apt-get", *flags, "-qq", "update"], scratch)
    shown = run(["apt-cache", *flags, "showsrc", PACKAGE], scratch)
    versions = re.findall(r"^Version: (\S+)$", shown, re.MULTILINE)
    if not versions:
        raise Missing(f"this machine's package sources have no source package {PACKAGE}: {said[-500:].strip()}")
    # The index may name what is not there any more, so each is tried: the server's own first.
    for candidate in sorted(set(versions), key=lambda text: (not text.startswith(f"{version}-"), text)):
        said = run(
            ["apt-get", *flags, "-qq", "source", "--download-only", "--tar-only", f"{PACKAGE}={candidate}"],
            scratch / "package",
        )
        for archive in (scratch / "package").glob("*.orig.tar.*"):
            return archive
    raise Missing(f"the source package {PACKAGE} could not be fetched: {said[-500:].strip()}")


def write_sources(folder: pathlib.Path) -> None:
    """This machine's sources of packages, as sources of source code, in both of apt's forms."""
    for source in [LISTS / "sources.list", *sorted((LISTS / "sources.list.d").glob("*"))]:
        if not source.is_file() or source.suffix not in (".list", ".sources"):
            continue
        text = source.read_text(errors="replace")
        if source.suffix == ".sources":
            text = re.sub(r"^Types:.*$", "Types: deb-src", text, flags=re.MULTILINE)
        else:
            lines = [line.strip() for line in text.splitlines()]
            text = "\n".join(re.sub(r"^deb(-src)?\s", "deb-src ", line) for line in lines if line.startswith("deb"))
        (folder / source.name).write_text(text + "\n")


def unpack(archive: pathlib.Path, into: pathlib.Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            wanted = WANTED.fullmatch(member.name)
            if wanted and member.isfile():
                path = into / wanted.group(1)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())
    if not (into / "sql").is_dir():
        raise Missing(f"{archive.name} has no src/test/regress/sql")


def run(command: list[str], folder: pathlib.Path) -> str:
    """What it said, whether it succeeded or not."""
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            env=dict(os.environ, LC_ALL="C"),
        )
    except subprocess.TimeoutExpired as error:
        raise Missing(f"{command[0]} took more than {PATIENCE_S} s") from error
    return done.stdout
