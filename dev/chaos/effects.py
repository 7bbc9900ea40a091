"""What workers did to the outside world, in two ledgers: one ignores the fencing token, one honours it.

Delivery is at least once: a worker that was killed after its effect, or that slept through its lease, is
followed by another. The plain ledger shows what comes of that; the fenced one takes an effect once.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_TABLES = """
CREATE TABLE IF NOT EXISTS plain (key TEXT, token INTEGER, worker TEXT);
CREATE TABLE IF NOT EXISTS fence (key TEXT PRIMARY KEY, token INTEGER);
CREATE TABLE IF NOT EXISTS fenced (key TEXT, token INTEGER, worker TEXT);
CREATE TABLE IF NOT EXISTS refused (key TEXT, token INTEGER, worker TEXT);
CREATE INDEX IF NOT EXISTS fenced_key ON fenced (key);
"""
BUSY_SEC = 60.0


class Effects:
    """Both ledgers in one file, shared by processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(sqlite3.connect(path, timeout=BUSY_SEC)) as db:
            db.executescript(_TABLES)

    def begin(self, key: str, token: int) -> None:
        """A worker begins under a token: older ones are refused from here on."""
        with self._open() as db:
            db.execute(
                "INSERT INTO fence VALUES (?, ?) "
                "ON CONFLICT (key) DO UPDATE SET token = max(token, excluded.token)",
                (key, token),
            )

    def perform(self, key: str, token: int, worker: str) -> None:
        """The effect of an execution, under its idempotency key and the token of the grant."""
        with self._open() as db:
            db.execute("INSERT INTO plain VALUES (?, ?, ?)", (key, token, worker))
            newest = db.execute("SELECT token FROM fence WHERE key = ?", (key,)).fetchone()
            done = db.execute("SELECT 1 FROM fenced WHERE key = ?", (key,)).fetchone()
            table = "refused" if done or newest[0] > token else "fenced"
            db.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (key, token, worker))

    def keys(self) -> set[str]:
        """Those with an effect in the fenced ledger."""
        with self._open() as db:
            return {key for (key,) in db.execute("SELECT DISTINCT key FROM fenced")}

    def counts(self) -> dict[str, int]:
        """Effects, and how many were the second of their key, in both ledgers; and what was refused."""
        with self._open() as db:

            def one(query: str) -> int:
                return int(db.execute(query).fetchone()[0])

            return {
                "effects": one("SELECT count(*) FROM fenced"),
                "duplicatesFenced": one("SELECT count(*) - count(DISTINCT key) FROM fenced"),
                "duplicatesPlain": one("SELECT count(*) - count(DISTINCT key) FROM plain"),
                "refused": one("SELECT count(*) FROM refused"),
            }

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """One transaction that nobody else writes into."""
        db = sqlite3.connect(self._path, timeout=BUSY_SEC, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        finally:
            db.close()
