"""The compiled engine (dev/compiled.py): used only if it is of today's sources, and decides the same."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev import compiled
from dev.compiled import ROOT

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


def _compiles_nothing(command: list[str], *, cwd: Path, **_: object) -> subprocess.CompletedProcess[str]:
    (cwd / "build").mkdir()
    return subprocess.CompletedProcess(command, 0, "")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one module, and a cache of its own."""
    for package in compiled.PACKAGES:
        (tmp_path / package).mkdir()
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


def test_of_two_that_compile_at_once_the_second_uses_what_the_first_made(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def is_late(self: Path, target: Path) -> Path:
        (target / "streams").mkdir(parents=True)
        return rename(self, target)

    monkeypatch.setattr(subprocess, "run", _compiles_nothing)
    monkeypatch.setattr(Path, "rename", is_late)
    assert compiled.build() == compiled.folder()
    assert [made.name for made in compiled.folder().parent.iterdir()] == [compiled.folder().name]


def test_what_is_compiled_exists() -> None:
    named = (*compiled.MODULES, *compiled.STAND_INS.values())
    assert [module for module in named if not (ROOT / module).is_file()] == []
    assert compiled.STAND_INS.keys() <= set(compiled.MODULES)


def test_a_stand_in_belongs_to_what_is_compiled(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the hash, and the copy has it in the module's place."""
    monkeypatch.setattr(compiled, "STAND_INS", {"streams/some.py": "dev/native/some.py"})
    monkeypatch.setattr(subprocess, "run", _compiles_nothing)
    without = compiled.folder()
    stand_in = sources / "dev" / "native" / "some.py"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text("NUMBER = 3\n")
    made = compiled.build()
    assert made == compiled.folder() != without
    assert (made / "streams" / "some.py").read_text() == "NUMBER = 3\n"
    stand_in.write_text("NUMBER = 4\n")
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
    environment = {"PYTHONPATH": os.pathsep.join(map(str, search)), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | environment | {"PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()


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
