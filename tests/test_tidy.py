"""Tidiness of the checkout: sizes, docs, and words that do not belong into it.

Reads the files Git knows or would add, so nothing generated or ignored is looked at.
"""

import ast
import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70  # what fits a screen; tests may tell longer stories

# Spelt in two halves, so that this file does not find itself.
MARKERS = ("TO" + "DO", "FIX" + "ME", "XX" + "X:")
MACHINE_PATHS = ("/ro" + "ot/", "/wo" + "rk/", "wo" + "rk/shared", "/ho" + "me/")
REGISTRY_HOSTS = (
    "pypi" + ".org",
    "pythonhosted" + ".org",
    "repo.maven" + ".apache",
    "repo1.maven" + ".org",
    "arti" + "factory",
)

BINARY = {".avro", ".bin", ".db", ".gz", ".ico", ".jpg", ".parquet", ".png", ".woff2", ".zip"}


def _listed() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    return [name for name in listed.stdout.decode().split("\0") if name]


@cache
def _files() -> tuple[Path, ...]:
    paths = (ROOT / name for name in _listed())
    # A file that was deleted but not yet committed is still listed.
    files = tuple(path for path in sorted(paths) if path.is_file())
    assert files
    return files


def _python() -> tuple[Path, ...]:
    return tuple(path for path in _files() if path.suffix == ".py")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _texts() -> Iterator[tuple[Path, str]]:
    for path in _files():
        if path.suffix not in BINARY:
            yield path, path.read_text(errors="replace")


def test_files_are_short() -> None:
    long = {
        _name(path): lines
        for path in _python()
        if (lines := len(path.read_text().splitlines())) > MAX_FILE_LINES
    }
    assert not long


def test_nothing_is_a_symbolic_link() -> None:
    links = [name for name in _listed() if (ROOT / name).is_symlink()]
    assert not links


def test_functions_are_short() -> None:
    long = {
        f"{_name(path)}:{node.lineno} {node.name}": lines
        for path in _python()
        if path.relative_to(ROOT).parts[0] != "tests"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert not long


def test_modules_say_what_they_own() -> None:
    silent = [
        _name(path)
        for path in _python()
        if (tree := ast.parse(path.read_text())).body and ast.get_docstring(tree) is None
    ]
    assert not silent


def test_nothing_sleeps() -> None:
    """Code waits for a signal, a process or an offset, always with a deadline."""
    sleepy = [
        f"{_name(path)}:{node.lineno}"
        for path in _python()
        for node in ast.walk(ast.parse(path.read_text()))
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "sleep"
            and isinstance(node.value, ast.Name)
            and node.value.id == "time"
        )
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and any(alias.name == "sleep" for alias in node.names)
        )
    ]
    assert not sleepy


@pytest.mark.parametrize("words", [MARKERS, MACHINE_PATHS, REGISTRY_HOSTS], ids=["markers", "paths", "hosts"])
def test_no_word_that_does_not_belong_here(words: tuple[str, ...]) -> None:
    found = [
        f"{_name(path)}:{number} {word}"
        for path, text in _texts()
        for number, line in enumerate(text.splitlines(), 1)
        for word in words
        if word in line
    ]
    assert not found


def test_the_lock_pins_everything_with_hashes() -> None:
    for name in ("requirements.lock", "requirements-dev.lock", "bench/peers/procrastinate/requirements.lock"):
        lines = (ROOT / name).read_text().splitlines()
        pins = [line for line in lines if line and not line.startswith((" ", "#"))]
        assert pins
        assert all("==" in line and line.endswith("\\") for line in pins), name
        assert sum("--hash=sha256:" in line for line in lines) >= len(pins)
        assert not any(line.startswith("-") for line in lines), "an option of pip's got into the lock"


def _undocumented(schema: Any, where: str) -> Iterator[str]:
    """Fields without a doc, in nested records too; and enums and records without one."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _undocumented(branch, where)
    elif isinstance(schema, dict):
        name = f"{where}.{schema['name']}" if "name" in schema else where
        if schema.get("type") in {"record", "enum"} and not schema.get("doc", "").strip():
            yield name
        for field in schema.get("fields", ()):
            if not field.get("doc", "").strip():
                yield f"{name}.{field['name']}"
            yield from _undocumented(field["type"], f"{name}.{field['name']}")
        for inside in ("type", "items", "values"):
            if isinstance(schema.get(inside), dict | list):
                yield from _undocumented(schema[inside], name)


def test_every_avro_field_has_a_doc() -> None:
    missing = [
        field
        for path in _files()
        if path.suffix == ".avsc"
        for field in _undocumented(json.loads(path.read_text()), _name(path))
    ]
    assert not missing


def test_a_missing_doc_is_found() -> None:
    inner = {"type": "record", "name": "Inner", "doc": "x", "fields": [{"name": "a", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "Outer",
        "doc": "x",
        "fields": [
            {"name": "b", "type": ["null", {"type": "array", "items": inner}], "doc": "x"},
            {"name": "c", "type": "int", "doc": " "},
        ],
    }
    assert list(_undocumented(schema, "s")) == ["s.Outer.b.Inner.a", "s.Outer.c"]
