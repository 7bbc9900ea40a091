"""Programs made with the client library, such as workers, as child processes of a tour or a test."""

import os
import subprocess
import sys
from pathlib import Path

from dev import processes
from dev.server import ROOT


def environment() -> dict[str, str]:
    """Of a child that takes the client library from its folder here."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients" / "python")])}


def start(module: str, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
    """Runs `python -m module arguments…`; what it says is appended to `log`."""
    return processes.start(
        [sys.executable, "-m", module, *arguments], log=log, environment=environment(), cwd=ROOT
    )
