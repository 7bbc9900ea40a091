"""The ground the other tests stand on: broker, database, and children that end with their parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dev import broker, processes
from tests.waiting import wait_until

KAFKA_SESSION_MS = 9_000  # `broker.session.timeout.ms` where nobody sets it


@pytest.mark.kafka
def test_the_broker_answers(kafka: str) -> None:
    assert broker.answers(kafka)


def test_the_database_answers(postgres: str) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(postgres)
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("select 1")).scalar() == 1
    engine.dispose()


def test_nothing_answers_where_nobody_listens() -> None:
    assert not broker.answers(f"{broker.HOST}:{broker.free_port()}")


@pytest.mark.kafka
@pytest.mark.slow
def test_a_killed_broker_goes_on_with_its_log_on_its_port(tmp_path: Path) -> None:
    with broker.LocalKafka(tmp_path) as kafka:
        before = (tmp_path / "log" / "meta.properties").read_text(), kafka.bootstrap
        os.kill(kafka.pid, signal.SIGKILL)
        wait_until(lambda: kafka.died)
        kafka.start()
        assert ((tmp_path / "log" / "meta.properties").read_text(), kafka.bootstrap) == before


def test_a_broker_ends_no_transaction_while_its_former_session_runs() -> None:
    """It does not know itself as a leader as long as that."""
    session_ms = int(broker.BROKER_SETTINGS.get("broker.session.timeout.ms", KAFKA_SESSION_MS))
    interval_ms = int(broker.BROKER_SETTINGS["transaction.abort.timed.out.transaction.cleanup.interval.ms"])
    assert interval_ms > 2 * session_ms


def test_a_broker_starts_on_what_one_with_the_defaults_wrote() -> None:
    """It ends at a segment with more index entries than it allows; topics may bound both, being new."""
    assert [name for name in broker.BROKER_SETTINGS if name.startswith("log.index.")] == []


def test_a_stopped_child_ends_by_itself_and_a_deaf_one_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    willing = processes.start(["sleep", "60"], log=log)
    deaf = processes.start(["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"], log=log)
    wait_until(lambda: log.read_text() == "deaf\n")

    assert processes.stop(willing, grace_sec=10)
    assert not processes.stop(deaf, grace_sec=0.1)
    assert deaf.returncode == -9


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot tie a child to its parent")
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from dev import processes; "
        "print(processes.start(['sleep', '60'], log=Path(sys.argv[1])).pid, flush=True); input()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parent.parent,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        child = int(parent.stdout.readline())
        processes.kill(parent)
    wait_until(lambda: not _runs(child))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # Whoever adopts an orphan may be slow to collect it: a zombie has ended, too.
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
