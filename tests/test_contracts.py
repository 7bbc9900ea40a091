"""Who may import whom: the contracts of pyproject.toml, and those import-linter cannot express.

The second kind reads the sources: which single module may import a client library, and that nothing
the pure core can reach sees a clock, chance, a thread or the outside world.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SERVER = ("schemas", "streams", "projections", "api")

# Package of others -> the only modules (or, with a dot at the end, packages) that may import it.
ONLY_IN = {
    "confluent_kafka": ("streams.transport.kafka.",),
    "rocksdict": ("streams.store.rocks",),
    "obstore": ("streams.store.buckets",),
    "fastavro": ("schemas.codec",),
    "sqlalchemy": ("projections.",),
    "psycopg": ("projections.",),
    "fastapi": ("api.",),
    "starlette": ("api.",),
    "uvicorn": ("api.",),
}

# All that streams.core may reach, directly or through others.
CORE_MAY_REACH = (
    "streams",
    "streams.core.",
    "streams.store",
    "streams.store.kv",
    "streams.store.overlay",
    "streams.store.sorted_keys",
    "schemas",
    "schemas.commands",
    "schemas.entities",
    "schemas.events",
    "schemas.ids",
    "schemas.messages",
    "schemas.replies",
    "schemas.topics",
)
CORE_MAY_USE = {"msgspec", "tzdata"}
# Standard library without clock, chance, threads, files, network or logging.
CORE_MAY_USE |= {
    *("__future__", "abc", "array", "base64", "binascii", "bisect", "calendar", "collections", "copy"),
    *(
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "hashlib",
        "heapq",
        "importlib",
        "ipaddress",
        "itertools",
    ),
    *("json", "math", "operator", "re", "string", "struct", "types", "typing", "weakref", "zlib"),
}
# Of datetime only what does not ask the clock.
CLOCK_METHODS = {"now", "utcnow", "today"}
CLOCK_OWNERS = {"datetime", "date", "dt"}


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's target, as a dotted name, and where it stands."""

    importer: str
    imported: str
    line: int


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[:2] == ("clients", "python"):
        parts = parts[2:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _sources(*folders: str) -> dict[str, Path]:
    return {_module_name(path): path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))}


def _imports(module: str, tree: ast.AST, path: Path) -> Iterator[Import]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                yield Import(module, f"{base}.{alias.name}", node.lineno)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
            # A name that is not written out could be anything.
            name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else "?"
            yield Import(module, str(name), node.lineno)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


@cache
def _all_imports(*folders: str) -> tuple[Import, ...]:
    return tuple(
        found
        for module, path in _sources(*folders).items()
        for found in _imports(module, ast.parse(path.read_text()), path)
    )


def _is_in(module: str, places: tuple[str, ...]) -> bool:
    return any(
        module == place or (place.endswith(".") and f"{module}.".startswith(place)) for place in places
    )


def _where(found: Import) -> str:
    return f"{found.importer}:{found.line} imports {found.imported}"


def test_the_layers_of_pyproject_hold() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_client_library_is_imported_in_one_place(library: str) -> None:
    wrong = [
        _where(found)
        for found in _all_imports(*SERVER, "dev")
        if found.imported.split(".")[0] == library and not _is_in(found.importer, ONLY_IN[library])
    ]
    assert not wrong


def _reach_of_core() -> dict[str, list[Import]]:
    """Every module of ours that streams.core can reach, with its imports."""
    sources = _sources(*SERVER)
    reached: dict[str, list[Import]] = {}
    waiting = [module for module in sources if _is_in(module, ("streams.core.",))]
    assert waiting, "streams.core is empty"
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        path = sources[module]
        reached[module] = list(_imports(module, ast.parse(path.read_text()), path))
        for found in reached[module]:
            # `from package import name` imports the package, and the module `name` if it is one.
            target = found.imported
            while target:
                if target in sources:
                    waiting.append(target)
                target = target.rpartition(".")[0]
    return reached


def test_the_core_is_pure() -> None:
    reached = _reach_of_core()
    strangers = [module for module in reached if not _is_in(module, CORE_MAY_REACH)]
    assert not strangers, "the core reaches modules it may not know"
    wrong = [
        _where(found)
        for imports in reached.values()
        for found in imports
        if found.imported.split(".")[0] not in {*CORE_MAY_USE, "schemas", "streams"}
    ]
    assert not wrong


def test_the_core_asks_no_clock() -> None:
    sources = _sources(*SERVER)
    wrong = [
        f"{module}:{node.lineno} calls {ast.unparse(node.func)}"
        for module in _reach_of_core()
        for node in ast.walk(ast.parse(sources[module].read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in CLOCK_METHODS
        and ast.unparse(node.func.value).split(".")[-1] in CLOCK_OWNERS
    ]
    assert not wrong


def test_package_files_hold_no_code() -> None:
    """Otherwise importing one module of a package would pull in its neighbours."""
    wrong = [
        module
        for module, path in _sources(*SERVER).items()
        if path.name == "__init__.py"
        and any(not isinstance(node, ast.Expr) for node in ast.parse(path.read_text()).body)
    ]
    assert not wrong


def test_the_client_knows_nothing_of_the_server() -> None:
    wrong = [
        _where(found)
        for found in _all_imports("clients/python")
        if found.imported.split(".")[0] in {*SERVER, "dev", "tests", "bench"}
    ]
    assert not wrong


def test_nobody_imports_tests_benchmarks_or_the_client() -> None:
    wrong = [
        _where(found)
        for found in _all_imports(*SERVER)
        if found.imported.split(".")[0] in {"tests", "bench", "horarium"}
    ]
    assert not wrong


def test_the_rules_see_what_they_forbid() -> None:
    """The reader of imports itself: every way of writing one is found."""
    source = (
        "import rocksdict.x as y\n"
        "from os import path\n"
        "from . import sibling\n"
        "from ..store import kv\n"
        "def f():\n    from uuid import uuid4\n"
        "import_module('tzdata'); importlib.import_module(name)\n"
    )
    found = [
        each.imported for each in _imports("streams.core.a", ast.parse(source), ROOT / "streams/core/a.py")
    ]
    assert sorted(found) == sorted(
        ["rocksdict.x", "os.path", "streams.core.sibling", "streams.store.kv", "uuid.uuid4", "tzdata", "?"]
    )


def test_no_group_is_asked_about_through_the_admin_client() -> None:
    """It ends the process by a signal when the group's coordinator has moved (librdkafka#5040)."""
    asked = re.compile(r"\b(list|alter)_consumer_group_offsets\b")
    found = [
        path for name in SERVER for path in (ROOT / name).rglob("*.py") if asked.search(path.read_text())
    ]
    assert found == []
