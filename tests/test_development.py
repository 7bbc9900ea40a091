"""The development server (dev/): keys, start, death and stop of its parts, with stand-in programs."""

import http.client
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dev import keys, server
from dev.broker import free_port
from tests.waiting import wait_until

# Answers /readyz like the API, and nothing else.
STAND_IN_API = """
import http.server, os
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
address = os.environ["HORARIUM_HTTP_HOST"], int(os.environ["HORARIUM_HTTP_PORT"])
http.server.HTTPServer(address, Ready).serve_forever()
"""
STAND_IN_PROCESSOR = "import os, signal; print(os.environ['HORARIUM_INSTANCE'], flush=True); signal.pause()"
STAND_IN_PROJECTIONS = "import signal; signal.pause()"


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "API", ("python", "-c", STAND_IN_API))
    monkeypatch.setattr(server, "PROCESSOR", ("python", "-c", STAND_IN_PROCESSOR))
    monkeypatch.setattr(server, "PROJECTIONS", ("python", "-c", STAND_IN_PROJECTIONS))
    for name in ("HORARIUM_DEV_KEYS", "HORARIUM_INSTANCE"):
        monkeypatch.delenv(name, raising=False)


def _server(data: Path, say: Callable[[str], None] = lambda line: None) -> server.Server:
    # The stand-ins talk to no broker.
    return server.Server(data, processors=2, bootstrap="127.0.0.1:1", say=say)


def test_keys_are_made_once_and_are_private(tmp_path: Path) -> None:
    first = keys.load_or_make(tmp_path / "data")
    assert keys.load_or_make(tmp_path / "data") == first
    assert stat.S_IMODE((tmp_path / "data" / "keys").stat().st_mode) == 0o600
    tenant, operator = first.first(), first.first(keys.OPERATOR_ROLE)
    assert tenant is not None
    assert operator is not None
    assert tenant.tenant == "default"
    assert tenant.key != operator.key


def test_given_keys_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORARIUM_DEV_KEYS", "acme=k1, acme=k2:worker:reports+mail, ops=k3:operator")
    given = keys.load_or_make(tmp_path)
    assert [(entry.tenant, entry.key, entry.role) for entry in given.entries] == [
        ("acme", "k1", "tenant"),
        ("acme", "k2", "worker"),
        ("ops", "k3", "operator"),
    ]
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize("text", ["acme", "=key", "acme=", "acme=:operator"])
def test_a_malformed_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HORARIUM_DEV_KEYS"):
        keys.parse(text)


def test_parts_start_and_stop_together(tmp_path: Path) -> None:
    with _server(tmp_path) as running:
        assert set(running.parts) == {"p0", "p1", "projections", "api"}
        assert all(part.running for part in running.parts.values())
        wait_until(lambda: (tmp_path / "logs" / "p1.log").read_text() == "p1\n")
    assert not any(part.running for part in running.parts.values())


def test_a_killed_part_stays_down_until_it_is_restarted(tmp_path: Path) -> None:
    with _server(tmp_path) as running:
        running.kill("p0")
        running.tend()
        assert not running.parts["p0"].running
        running.restart("p0")
        assert running.parts["p0"].running


def test_a_part_that_dies_is_reported_and_starts_again(tmp_path: Path) -> None:
    said: list[str] = []
    with _server(tmp_path, said.append) as running:
        part = running.parts["projections"]
        part.backoff_sec = 0.05
        assert part.process is not None
        part.process.kill()
        part.process.wait()

        def started_again() -> bool:
            running.tend()
            return part.running

        wait_until(started_again)
    assert [line.split(";")[0] for line in said] == [
        "projections was ended by signal 9",
        "projections started again",
    ]


def test_a_part_that_cannot_start_ends_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "API", ("python", "-c", "raise SystemExit('no port left')"))
    broken = _server(tmp_path)
    with pytest.raises(server.ServerError, match=r"api ended with code 1(.|\n)*no port left"):
        broken.start()
    assert not any(part.running for part in broken.parts.values())


UP_WITH_STAND_INS = f"""
from dev import server, up
server.API = ("python", "-c", {STAND_IN_API!r})
server.PROCESSOR = ("python", "-c", {STAND_IN_PROCESSOR!r})
server.PROJECTIONS = ("python", "-c", {STAND_IN_PROJECTIONS!r})
up.main()
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_make_up_says_how_to_begin_and_stops_when_asked(
    kafka: str, tmp_path: Path, ending: signal.Signals
) -> None:
    port = free_port()
    told = {"HORARIUM_KAFKA": kafka, "HORARIUM_DATA": str(tmp_path), "HORARIUM_HTTP_PORT": str(port)}
    process = subprocess.Popen(
        [sys.executable, "-c", UP_WITH_STAND_INS],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | told,
        cwd=Path(server.__file__).parent.parent,
    )
    assert process.stdout is not None
    with process, process.stdout:
        said = ""
        while "Ctrl-C stops it." not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        assert f"http://127.0.0.1:{port}/v1/jobs" in said
        assert keys.load_or_make(tmp_path).entries[0].key in said
        process.send_signal(ending)
        assert process.stdout.read() == "Stopped.\n"
    assert process.returncode == 0
    assert answers_nobody(port)


def answers_nobody(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
    except ConnectionRefusedError:
        return True
    finally:
        connection.close()
    return False


def test_a_data_folder_serves_one_server(tmp_path: Path) -> None:
    with _server(tmp_path), pytest.raises(server.ServerError, match="another server"):
        _server(tmp_path).start()
    # And after it has stopped, the next.
    with _server(tmp_path) as next_one:
        connection = http.client.HTTPConnection("127.0.0.1", next_one.http_port, timeout=5)
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200
        connection.close()
