"""Runs Python in a process of its own, where what it imports is another than here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_python(folder: Path, *arguments: str, **variables: str) -> list[str]:
    """The lines that it says. AssertionError with them if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()
