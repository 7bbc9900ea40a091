"""Pins what this checkout installs: writes requirements.lock, requirements-dev.lock and the peers' lock.

pip-compile reads no dependency groups (PEP 735) and its output may name the package index of the
machine it ran on; this module hands it the groups and switches every such line off. Pins that are
still allowed stay as they are; `python -m dev.lock --upgrade` takes the newest of everything.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

RUNTIME_LOCK = "requirements.lock"
DEV_LOCK = "requirements-dev.lock"
PEERS_LOCK = "bench/peers/procrastinate/requirements.lock"

_OPTIONS = (
    "--quiet",
    "--generate-hashes",
    # pip-tools needs pip and setuptools; with --require-hashes they must be pinned like all others.
    "--allow-unsafe",
    "--strip-extras",
    "--no-config",
    "--no-header",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-emit-trusted-host",
    "--no-emit-options",
)


def _compile(requirements: list[str], output: str, *more: str) -> None:
    environment = os.environ | {"CUSTOM_COMPILE_COMMAND": "make lock"}
    subprocess.run(
        [sys.executable, "-m", "piptools", "compile", *_OPTIONS, *more, "--output-file", output, "-"],
        input="\n".join(requirements),
        text=True,
        cwd=ROOT,
        env=environment,
        check=True,
    )


def main(arguments: list[str]) -> None:
    """Writes all locks; the second holds the tools as well and is what `make` installs."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    runtime: list[str] = project["project"]["dependencies"]
    tools: list[str] = project["dependency-groups"]["dev"]
    _compile(runtime, RUNTIME_LOCK, *arguments)
    _compile([*runtime, *tools], DEV_LOCK, "--constraint", RUNTIME_LOCK, *arguments)
    _compile(project["dependency-groups"]["peers"], PEERS_LOCK, "--constraint", RUNTIME_LOCK, *arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
