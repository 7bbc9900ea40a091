"""The demo itself: it ends well, its last line is the verdict, and it leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dev.server import ROOT


def processes_under(folder: Path) -> list[str]:
    """Processes that were told of the folder, as each part of the demo is, where its data lies."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue  # it ended meanwhile, or is somebody else's
        if str(folder).encode() in text and int(entry.name) != os.getpid():
            found.append(entry.name)
    return found


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_demo(kafka: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HORARIUM_KAFKA": kafka, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "dev.demo"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert not any(summary["violations"].values())
    assert summary["occurrences"]["due"] > 45
    # The accidents took place: three failing jobs, one dead letter, one worker killed.
    assert summary["jobs"] == 39
    assert summary["executions"]["COMPLETED"] > 45
    assert summary["attemptsFailed"] >= 4
    assert summary["executions"]["FAILED"] == 1
    assert summary["redelivered"] >= 1
    assert not processes_under(tmp_path)
    assert not list(tmp_path.iterdir())
