"""The compiled engine (dev/compiled.py): used only if it is of today's sources, and decides the same."""

import ast
import fcntl
import os
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from dev import compiled
from dev.compiled import ROOT
from streams.ambient import wall_ms
from tests.python import run_python

SEEDS = (1, 2, 3, 4)
"""Of the simulation, compared to the last byte of the log."""
SUITES = (
    "tests/properties/test_core.py",
    "tests/properties/test_codec.py",
    "tests/unit/schemas/test_codec.py",
)

_PRINTS = f"""\
from streams.core import engine
from tests.simulation.runs import run_seed
print(engine.__file__)
for seed in {SEEDS}:
    result = run_seed(seed)
    print(seed, result.events, result.print, *result.violations)
"""

_DAMAGES = """\
import hashlib
import random
from schemas import avsc, codec, decoders
from tests.golden import sample
print(decoders.__file__)
chance = random.Random(1)
whole = [codec.encode(sample(cls)) for cls in avsc.record_classes().values()]
read = 0
seen = hashlib.sha256()
for _ in range(20_000):
    data = bytearray(chance.choice(whole))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(codec._HEADER, len(data) + 1)
        given = [chance.choice((0, 1, 2, 127, 128, 254, 255)) for _ in range(chance.randint(0, 10))]
        data[at : at + chance.randint(0, 3)] = bytes(given)
    try:
        found = repr(codec.decode(bytes(data)))
        read += 1
    except codec.UndecodableError:
        found = ""
    seen.update(found.encode())
print(read, seen.hexdigest())
"""


_STARTS = """\
import sys
from pathlib import Path
from dev import compiled
compiled.folder.__defaults__ = (Path(sys.argv[1]),)
print(compiled.environment(), flush=True)
sys.stdin.read()
"""


_ADOPTS = """\
import sys
from pathlib import Path
from dev import compiled
compiled.ROOT = Path(sys.argv[1])
compiled.folder.__defaults__ = (Path(sys.argv[1]),)
compiled.adopt()
from streams import some
print(some.NUMBER, "PYTHONSAFEPATH" in compiled.os.environ, *sys.argv[2:])
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one module of its own beside those that are compiled, which are empty; and a cache."""
    for module in (*compiled.MODULES, compiled.HEADER_SOURCE):
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / module).touch()
    (tmp_path / "streams" / "some.py").write_text("NUMBER = 1\n")
    monkeypatch.setattr(compiled, "ROOT", tmp_path)
    monkeypatch.setattr(compiled.folder, "__defaults__", (tmp_path,))
    monkeypatch.setenv("HORARIUM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(compiled.PURE, raising=False)
    return tmp_path


def test_processors_run_the_sources_where_nothing_is_compiled(sources: Path) -> None:
    assert compiled.environment() == {}


def test_what_was_compiled_from_other_sources_is_not_used(sources: Path) -> None:
    made = compiled.folder()
    made.mkdir(parents=True)
    assert compiled.environment()["PYTHONPATH"].startswith(f"{made}{os.pathsep}")
    (sources / "streams" / "some.py").write_text("NUMBER = 2\n")
    assert compiled.environment() == {}
    (sources / "streams" / "some.py").write_text("NUMBER = 1\n")
    assert compiled.folder() == made
    (sources / "schemas" / "more.py").touch()
    assert compiled.environment() == {}


def test_it_can_be_switched_off(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.folder().mkdir(parents=True)
    monkeypatch.setenv(compiled.PURE, "1")
    assert compiled.environment() == {}


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stands in for mypyc: makes nothing, at once; the folders in which it ran."""
    ran: list[Path] = []

    def compiles(command: list[str], *, cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
        (cwd / "build").mkdir()
        ran.append(cwd)
        return subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr(subprocess, "run", compiles)
    return ran


def test_what_a_change_led_back_to_is_used_as_it_is(
    sources: Path, compiler: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source is changed between the look at its hash and the copy."""
    made = compiled.build()
    (sources / "streams" / "some.py").write_text("NUMBER = 2\n")
    copy = shutil.copyfile

    def copies_the_old(source: Path, target: Path) -> None:
        copy(source, target)
        if source.name == "some.py":
            target.write_text("NUMBER = 1\n")

    monkeypatch.setattr(shutil, "copyfile", copies_the_old)
    assert compiled.build() == made
    assert len(compiler) == 2
    assert _names(made.parent) == {made.name}


def test_of_two_that_compile_at_once_the_second_uses_what_the_first_made(
    sources: Path, compiler: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    second: list[Future[Path]] = []
    sync = os.sync

    def another_begins() -> None:
        second.append(pool.submit(compiled.build))
        descriptor = os.open(compiled.folder().parent, os.O_RDONLY)
        with pytest.raises(BlockingIOError):  # or it would not wait
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        sync()

    with ThreadPoolExecutor() as pool:
        monkeypatch.setattr(os, "sync", another_begins)
        made = compiled.build()
        assert [each.result(10) for each in second] == [made]
    assert len(compiler) == 1
    assert _names(made.parent) == {made.name}


def test_what_a_killed_builder_left_is_removed(sources: Path, compiler: list[Path]) -> None:
    made = compiled.build()
    left = made.parent / f"{compiler[0].parent.name}-of-another"
    (left / "copy" / "build").mkdir(parents=True)
    assert compiled.build() == made
    assert _names(made.parent) == {made.name}


def test_folders_of_other_sources_are_removed_a_week_after_their_last_use(
    sources: Path, compiler: list[Path]
) -> None:
    made = []
    for number in range(3):
        (sources / "streams" / "some.py").write_text(f"NUMBER = {number}\n")
        made.append(compiled.build())
    assert _names(made[0].parent) == {each.name for each in made}
    long_ago = wall_ms() / 1000 - compiled.UNUSED_SEC - 1
    for each in made:
        os.utime(each, (long_ago, long_ago))
    (sources / "streams" / "some.py").write_text("NUMBER = 1\n")
    assert compiled.environment() != {}
    (sources / "streams" / "some.py").write_text("NUMBER = 2\n")
    assert compiled.build() == made[2]
    assert _names(made[0].parent) == {made[1].name, made[2].name}


def test_a_folder_is_not_removed_while_whoever_started_processes_from_it_runs(
    sources: Path, compiler: list[Path]
) -> None:
    """Its processes read schemas of former versions from it, when the first of their records comes."""
    made = compiled.build()
    starts = subprocess.Popen(
        [sys.executable, "-c", _STARTS, str(sources)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starts.stdout is not None
    try:
        assert str(made) in starts.stdout.readline()
        (sources / "streams" / "some.py").write_text("NUMBER = 2\n")
        os.utime(made, (0, 0))
        newest = compiled.build()
        assert _names(made.parent) == {made.name, newest.name}
    finally:
        starts.communicate()
    compiled.build()
    assert _names(made.parent) == {newest.name}


def test_a_cache_that_cannot_be_written_is_used(
    sources: Path, compiler: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compiled.build()

    def refuses(path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(os, "utime", refuses)
    assert str(made) in compiled.environment()["PYTHONPATH"]


@pytest.mark.parametrize("pure", [False, True])
def test_a_load_goes_on_with_what_was_compiled(
    sources: Path, compiler: list[Path], pure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, with the arguments it was given, and its children are told nothing of it but where it is."""
    shutil.copytree(ROOT / "dev", sources / "dev", dirs_exist_ok=True)
    shutil.copyfile(ROOT / "streams" / "ambient.py", sources / "streams" / "ambient.py")
    made = compiled.build()
    shutil.copytree(sources / "streams", made / "streams", dirs_exist_ok=True)
    (made / "streams" / "some.py").write_text("NUMBER = 2\n")
    monkeypatch.undo()
    environment = os.environ | {"HORARIUM_CACHE": str(sources / "cache"), "PYTHONPATH": str(sources)}
    if pure:
        environment[compiled.PURE] = "1"
    command = [sys.executable, "-c", _ADOPTS, str(sources), "given", "-x"]
    said = subprocess.check_output(command, cwd=sources, env=environment, text=True, timeout=30)
    assert said.split() == ["1" if pure else "2", "False", "given", "-x"]


def _names(folder: Path) -> set[str]:
    return {found.name for found in folder.iterdir()}


def test_what_is_compiled_exists() -> None:
    named = (*compiled.MODULES, *compiled.STAND_INS.values())
    assert [module for module in named if not (ROOT / module).is_file()] == []
    assert compiled.STAND_INS.keys() <= set(compiled.MODULES)


def test_a_stand_in_belongs_to_what_is_compiled(
    sources: Path, compiler: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the hash, and the copy has it in the module's place."""
    monkeypatch.setattr(compiled, "STAND_INS", {"streams/some.py": "dev/native/some.py"})
    without = compiled.folder()
    stand_in = sources / "dev" / "native" / "some.py"
    stand_in.write_text("NUMBER = 3\n")
    made = compiled.build()
    assert made == compiled.folder() != without
    assert (made / "streams" / "some.py").read_text() == "NUMBER = 3\n"
    stand_in.write_text("NUMBER = 4\n")
    assert compiled.folder() != made


def test_the_header_belongs_to_what_is_compiled(sources: Path, compiler: list[Path]) -> None:
    """It is in the hash, and the copy has it under the name of mypyc's own."""
    (sources / compiled.HEADER_SOURCE).write_text("/* first */")
    made = compiled.build()
    assert made == compiled.folder()
    assert (made / "include" / "CPy.h").read_text() == "/* first */"
    (sources / compiled.HEADER_SOURCE).write_text("/* second */")
    assert compiled.folder() != made


def test_nothing_that_is_compiled_returns_a_generator_expression() -> None:
    """mypyc makes a list of it: all tenants of a shared pool would be read for the first few."""
    found = [
        f"{module}:{node.lineno}"
        for module in compiled.MODULES
        for node in ast.walk(ast.parse((ROOT / compiled.STAND_INS.get(module, module)).read_text()))
        if isinstance(node, ast.Return) and isinstance(node.value, ast.GeneratorExp)
    ]
    assert found == []


@pytest.fixture(scope="module")
def made() -> Path:
    if not compiled.can_compile():
        pytest.skip("no C compiler")
    return compiled.build()


def _run(paths: list[Path], *arguments: str) -> list[str]:
    search = [*paths, ROOT, ROOT / "clients" / "python"]
    path = os.pathsep.join(map(str, search))
    return run_python(ROOT, *arguments, PYTHONPATH=path, PYTHONSAFEPATH="1", PYTHONHASHSEED="0")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_simulated_cluster_writes_the_same_log(made: Path) -> None:
    """Every record of every partition, under crashes, zombies and lost messages."""
    (from_source, *expected), (from_extension, *found) = _run([], "-c", _PRINTS), _run([made], "-c", _PRINTS)
    assert from_source == str(ROOT / "streams" / "core" / "engine.py")
    assert Path(from_extension).is_relative_to(made)
    assert not from_extension.endswith(".py")
    assert found == expected
    assert len(found) == len(SEEDS)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_suites_of_engine_and_codec_hold_when_compiled(made: Path) -> None:
    search = " ".join(map(str, (made, ROOT, ROOT / "clients" / "python")))
    _run([made], "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath={search}", *SUITES)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_damaged_bytes_are_read_or_refused_alike(made: Path) -> None:
    """What one way takes and the other does not would be a difference between processors."""
    (_, expected), (from_extension, found) = _run([], "-c", _DAMAGES), _run([made], "-c", _DAMAGES)
    assert Path(from_extension).is_relative_to(made)
    assert not from_extension.endswith(".py")
    assert found == expected
    assert int(found.split()[0]) > 100
