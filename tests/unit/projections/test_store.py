"""The database and its settings; SQLite and PostgreSQL behave alike everywhere else."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import bindparam, delete, select
from sqlalchemy.exc import OperationalError

from projections import main, store
from projections.settings import ProjectionSettings
from projections.store import ForeignDatabaseError, Store, check_url
from projections.tables import jobs, meta
from streams.config import SettingsError
from tests.unit.projections.story import Story, fold, job


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "read.db"


def test_tables_are_made_once(file: Path) -> None:
    made = Store(f"sqlite:///{file}")
    assert not made.is_current()
    assert made.ensure()
    assert not made.ensure()
    made.close()
    again = Store(f"sqlite:///{file}")
    assert not again.ensure()
    again.close()


def test_another_ones_tables_are_not_dropped(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE jobs (id, salary)")
    connection.close()
    made = Store(f"sqlite:///{path}")
    with pytest.raises(ForeignDatabaseError, match="holds tables that are not Horarium's"):
        made.recreate()
    made.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
    connection.close()


def test_readers_neither_wait_for_the_writer_nor_see_half_of_it(file: Path) -> None:
    made = Store(f"sqlite:///{file}")
    made.recreate()
    story = Story()
    story.register(job("a"))
    fold(made, story.records)
    with made.writing() as writer:
        writer.connection.execute(jobs.delete())
        with made.reading() as connection:
            assert connection.execute(select(jobs.c.job_id)).scalars().all() == ["a"]
    with made.reading() as connection:
        assert connection.execute(select(jobs.c.job_id)).scalars().all() == []
    made.close()


def test_a_second_writer_waits_its_turn(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BUSY_SEC", 0.01)
    made = Store(f"sqlite:///{file}")
    made.recreate()
    inside, done = threading.Event(), threading.Event()

    def write() -> None:
        with made.writing():
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(10)
    with pytest.raises(OperationalError, match="locked"), made.writing():
        pass
    done.set()
    thread.join()
    with made.writing():
        pass
    made.close()


@pytest.mark.parametrize("url", ["sqlite:///x.db", "sqlite:////tmp/x.db", "postgresql+psycopg://me@host/db"])
def test_databases(url: str) -> None:
    assert str(check_url(url)) == url


@pytest.mark.parametrize(
    "url", ["", "x.db", "sqlite://", "sqlite:///:memory:", "mysql://h/d", "postgresql://h/d"]
)
def test_what_is_no_database(url: str) -> None:
    with pytest.raises(ValueError, match="sqlite:///<file> or postgresql"):
        check_url(url)


def test_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HORARIUM_KAFKA", "localhost:9092")
    monkeypatch.setenv("HORARIUM_DATA", str(tmp_path))
    monkeypatch.delenv("HORARIUM_DATABASE_URL", raising=False)
    assert ProjectionSettings.load().store_url == f"sqlite:///{tmp_path}/projections.db"
    monkeypatch.setenv("HORARIUM_DATABASE_URL", "postgresql+psycopg://me@host/db")
    assert ProjectionSettings.load().store_url == "postgresql+psycopg://me@host/db"
    monkeypatch.setenv("HORARIUM_DATABASE_URL", "mysql://me:secret@host/db")
    with pytest.raises(SettingsError, match="HORARIUM_DATABASE_URL: a database is") as caught:
        ProjectionSettings.load()
    assert "secret" not in str(caught.value)


def test_wrong_settings_end_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HORARIUM_KAFKA", raising=False)
    assert main.main([]) == main.WRONG_SETTINGS
    assert "HORARIUM_KAFKA is not set" in capsys.readouterr().err


def test_a_statement_may_have_one_parameter_alone(file: Path) -> None:
    made = Store(f"sqlite:///{file}")
    made.ensure()
    drop = delete(meta).where(meta.c.name == bindparam("of_name"))
    with made.writing() as writer:
        writer.insert(meta, [{"name": name, "value": b""} for name in ("one", "two", "three")])
        writer.each(drop, [{"of_name": "one"}, {"of_name": "two"}])
    with made.reading() as connection:
        names = set(connection.execute(select(meta.c.name)).scalars())
    assert "three" in names
    assert not names & {"one", "two"}
    made.close()
