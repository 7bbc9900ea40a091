"""A worker process of its own: signals end it in order, or at once; and the package itself."""

import os
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from horarium.clock import SystemClock

from tests.unit.sdk.fake_server import FakeServer, running
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
CLIENT = ROOT / "clients" / "python"

PROGRAM = """
import logging, sys, threading
from horarium import App

logging.basicConfig(level="INFO")
app = App(sys.argv[1], "key", pool="reports", slots=2, drain_sec=20)

@app.handler("short")
def short(ctx):
    ctx.log.info("begun")
    threading.Event().wait(0.5)
    return "done"

@app.handler("endless")
def endless(ctx):
    ctx.log.info("begun")
    threading.Event().wait()

app.run()
"""


@pytest.fixture
def live() -> Iterator[FakeServer]:
    with running(SystemClock()) as server:
        yield server


Process = subprocess.Popen[bytes]


@pytest.fixture
def program(live: FakeServer, tmp_path: Path) -> Iterator[Process]:
    """The program above as a process; what it says goes to `said`."""
    environment = {**os.environ, "PYTHONPATH": str(CLIENT)}
    command = [sys.executable, "-c", PROGRAM, live.url]
    with (
        (tmp_path / "said").open("wb") as said,
        subprocess.Popen(command, env=environment, stderr=said) as process,
    ):
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_finish(live: FakeServer, program: Process, tmp_path: Path, number: int) -> None:
    task = live.add("e1", task="short")
    wait_until(lambda: "begun" in (tmp_path / "said").read_text())
    program.send_signal(number)
    assert program.wait(10) == 0
    assert task.outcome["result"] == "done"
    assert live.grants == ["e1"]


def test_a_second_signal_ends_it_at_once(live: FakeServer, program: Process, tmp_path: Path) -> None:
    live.add("e1", task="endless")
    wait_until(lambda: "begun" in (tmp_path / "said").read_text())
    program.send_signal(signal.SIGTERM)
    wait_until(lambda: "drains 1 executions" in (tmp_path / "said").read_text())
    assert program.poll() is None
    program.send_signal(signal.SIGTERM)
    assert program.wait(5) == 128 + signal.SIGTERM


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment(tmp_path: Path) -> None:
    """Built and installed as a user would, except that httpx2 comes from this environment's packages."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist")]
    source = tmp_path / "source"
    subprocess.run(["cp", "-r", str(CLIENT), str(source)], check=True)
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    clean = tmp_path / "venv"
    venv.create(clean, with_pip=True)
    python = clean / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    (packages,) = (clean / "lib").glob("python*/site-packages")
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "borrowed.pth").write_text(ours + "\n")
    code = (
        "import horarium, importlib.metadata as m, pathlib;"
        "where = pathlib.Path(horarium.__file__).parent;"
        "assert (where / 'py.typed').exists();"
        "assert m.version('horarium') == horarium.__version__;"
        "print(where, m.requires('horarium'), horarium.App('http://127.0.0.1:1', 'k').pool)"
    )
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert str(packages) in done.stdout
    assert "['httpx2>=2.16'] default" in done.stdout
