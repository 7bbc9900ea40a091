"""The engine's inner modules as machine code: `make compiled`. Optional; what they do is the same.

mypyc makes extension modules from a copy of `schemas` and `streams`, beside the Python files that they stand
for. A few modules have a stand-in that is better as machine code, and all have inline caches (`dev.native`).
The copy's folder is named by a hash of all that goes into it, and gets that name when it is complete. So
a processor is started from it only if it was made from today's sources; otherwise it runs those. Checkouts
may share the cache: one compiles at a time, and clears away what nobody started a processor from for a week.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from dev import hoisting
from dev.jars import cache
from streams.ambient import wall_ms

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("schemas", "streams")
PURE = "HORARIUM_PURE"
"""Set: the server runs the sources, compiled or not."""
UNUSED_SEC = 7 * 24 * 3600
"""A folder of other sources from which no process was started for so long is removed, unless whoever started
them still runs: schemas of former versions are read when the first of their records comes."""

# What a registration and an execution go through. Left out is what checks types itself (varint), for compiled
# code takes a bool for an int and makes a float of an int; what is weakly referred to (generations); and a
# base of classes that are left out (instants).
_CORE = (
    *("caps", "counters", "decoded", "engine", "fairness", "guards", "indexes", "kept", "keys", "late"),
    *("lifecycle", "outcomes", "parking", "planning", "priorities", "rates", "room", "schedule", "state"),
    *("timebuckets", "transaction", "validation"),
)
_HANDLERS = (
    *("answering", "breaking", "cancelling", "ending", "firing", "following", "gating", "granting"),
    *("leasing", "ordering", "outcome", "parcels", "registration", "scheduling", "timing", "vacating"),
)
MODULES = (
    "schemas/codec.py",
    "schemas/decoders.py",
    "schemas/encoders.py",
    "schemas/ids.py",
    *(f"streams/core/{name}.py" for name in _CORE),
    *(f"streams/core/handlers/{name}.py" for name in _HANDLERS),
    "streams/runtime/checkpoint.py",
    "streams/runtime/deciding.py",
    "streams/store/overlay.py",
    "streams/store/sorted_keys.py",
)
STAND_INS = {f"schemas/{name}.py": f"dev/native/{name}.py" for name in ("decoders", "encoders")}
"""Source by the module in whose place it is compiled."""
HEADER, HEADER_SOURCE = "include/CPy.h", "dev/native/inline_caches.h"
"""Comes before mypyc's header of that name, and includes it."""
# Without settings: those of a checkout in which the cache lies would name that one's modules as the others.
_OPTIONS = ("--config-file=", "--strict", "--explicit-package-bases", "--namespace-packages")
_UNFINISHED = "unfinished-"
_held: dict[Path, int] = {}
"""Descriptors of folders that this process starts others from, each locked for as long as it runs."""
SETTINGS = {
    "MYPYC_OPT_LEVEL": "2",
    "MYPYC_DEBUG_LEVEL": "0",
    "MYPYC_MULTI_FILE": "1",
    "CFLAGS": f"-I{Path(HEADER).parent}",
}


class CompileError(Exception):
    """It could not be compiled; the message is the compiler's."""


def environment() -> dict[str, str]:
    """What a process of the server is told so that it runs compiled; nothing if it is to run the sources.
    API and read model have of it the codec, and what they check and plan with."""
    made = folder()
    if os.environ.get(PURE) or not _hold(made):
        return {}
    # Safe path: or the folder in which it is started, with the sources, would come first.
    return {"PYTHONPATH": os.pathsep.join([str(made), str(ROOT)]), "PYTHONSAFEPATH": "1"}


def adopt() -> None:
    """Starts this program anew with the compiled codec, before it has done anything: for a load that is a
    service which reads and writes records. Returns if there is none, or if it runs with it already."""
    path = environment().get("PYTHONPATH")
    if path and str(folder()) not in sys.path:
        given = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([path, given]) if given else path
        # Safe path by option: as a variable it would reach its children, the peers' programs among them.
        command = [sys.executable, "-P", *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": path})


def _hold(made: Path) -> bool:
    """Keeps the folder from being removed; False if there is none."""
    if made not in _held:
        try:
            descriptor = os.open(made, os.O_RDONLY)
        except FileNotFoundError:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        _held[made] = descriptor
    with suppress(OSError):  # somebody else's, or read-only: then nobody clears it away
        os.utime(made)
    return made.exists()


def folder(root: Path = ROOT) -> Path:
    """Where the modules are, or would be, that are compiled from today's sources."""
    return cache() / "compiled" / _hash(root)


def can_compile() -> bool:
    """Whether there are a C compiler and Python's headers."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return shutil.which(compiler) is not None and headers.exists()


def build() -> Path:
    """Compiles, unless that was done; the folder. Raises CompileError."""
    parent = folder().parent
    parent.mkdir(parents=True, exist_ok=True)
    with _alone(parent):
        made = folder()
        if not made.exists():
            made = _compile(parent)
        os.utime(made)
        _clear(made)
    return made


@contextmanager
def _alone(path: Path, flags: int = 0) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | flags)  # gone with its process, however that ends
        yield
    finally:
        os.close(descriptor)


def _compile(parent: Path) -> Path:
    with TemporaryDirectory(prefix=_UNFINISHED, dir=parent) as name:
        copy = Path(name) / "copy"
        for module, source in _sources(ROOT):
            target = copy / module
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        made = folder(copy)  # a source may have changed just now
        for module in MODULES:
            path = copy / module
            path.write_text(hoisting.hoisted(path.read_text()))
        done = subprocess.run(
            [sys.executable, "-m", "mypyc", *_OPTIONS, *MODULES],
            cwd=copy,
            env=os.environ | SETTINGS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CompileError(done.stdout)
        shutil.rmtree(copy / "build")
        os.sync()  # or after a power cut the name may be there without all that it promises
        if not made.exists():
            copy.rename(made)
    return made


def _clear(made: Path) -> None:
    """Removes what builders that were killed left behind, and folders that nobody uses any more."""
    for found in made.parent.iterdir():
        if not found.name.startswith(_UNFINISHED):
            if found == made or wall_ms() / 1000 - found.stat().st_mtime < UNUSED_SEC:
                continue
            try:
                with _alone(found, fcntl.LOCK_NB):
                    # At once: half a folder must not be started from.
                    found = found.rename(found.with_name(_UNFINISHED + found.name))
            except BlockingIOError:  # in use
                continue
        # A compiler that outlived its builder may still write there; then the next one removes the rest.
        shutil.rmtree(found, ignore_errors=True)


def _sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Each file that is compiled or read beside it, by the name that it has in the copy, where stand-ins have
    taken places."""
    header = root / HEADER_SOURCE
    yield HEADER, header if header.is_file() else root / HEADER
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(root).as_posix()
                stand_in = root / STAND_INS.get(name, name)
                yield name, stand_in if stand_in.is_file() else path


def _hash(root: Path) -> str:
    digest = hashlib.sha256()
    used = (sys.implementation.cache_tag, platform.python_version(), platform.machine(), version("mypy"))
    digest.update(repr((used, MODULES, _OPTIONS, SETTINGS)).encode())
    digest.update(Path(hoisting.__file__).read_bytes())
    for name, path in _sources(root):
        digest.update(repr((name, path.read_bytes())).encode())
    return digest.hexdigest()[:16]


def main() -> None:
    """The command line."""
    if not can_compile():
        print("No C compiler or no headers of Python: the server runs the sources.")
        return
    if not folder().exists():
        print("Compiling the engine (a minute or two)", flush=True)
    try:
        print(f"The server runs compiled, from {build()}")
    except CompileError as error:
        sys.exit(f"The engine was not compiled:\n{error}")


if __name__ == "__main__":
    main()
