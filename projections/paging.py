"""Owns pages: limits, opaque tokens, and the walk over an order that never changes.

A token holds the sort key of the last row that was shown, so rows that share a time are neither lost nor
repeated at a border and new rows never shift a walk. It is encrypted and authenticated with a secret of this
generation of the tables together with the question it belongs to: it cannot be read or made, it answers no
other question, and it ends with a rebuild. It grants nothing: every query filters on its tenant anyway.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import BigInteger, ColumnElement, Connection, Select, select, tuple_, type_coerce

from projections.columns import TEXT
from projections.tables import meta
from projections.views import Page, PageRequest

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 1_000
FIRST_PAGE = PageRequest()

PAGE_SECRET = "page_secret"
SECRET_BYTES = 32
_TAG_BYTES = 16

T = TypeVar("T")


class StaleTokenError(ValueError):
    """The page token is damaged, belongs to other parameters, or the read model was rebuilt since."""


class PageSizeError(ValueError):
    """The page size is negative."""


class SortKey(NamedTuple):
    """Where a row stands: newest time first, then the greatest id. Log positions have no id."""

    time: int
    id: str = ""


@dataclass(frozen=True, slots=True)
class Walk:
    """One page of a question: how many rows, and after which."""

    size: int
    after: SortKey | None
    secret: bytes
    question: bytes

    def select(
        self,
        statement: Select[T],
        time: ColumnElement[int],
        row_id: ColumnElement[str] | None = None,
        down_to: SortKey | None = None,
    ) -> Select[T]:
        """The statement for this page and one row more, which tells whether there is another page. Rows below
        `down_to` are of no interest."""
        order: list[ColumnElement[Any]] = [time] if row_id is None else [time, row_id]
        if self.after is not None:
            statement = statement.where(tuple_(*order) < _border(self.after, len(order)))
        if down_to is not None:
            statement = statement.where(tuple_(*order) > _border(down_to, len(order)))
        return statement.order_by(*(column.desc() for column in order)).limit(self.size + 1)

    def lowest(self, found: Collection[SortKey]) -> SortKey | None:
        """The last row that this page can show, if what was found fills it."""
        return min(found) if len(found) > self.size else None

    def page(self, rows: Sequence[tuple[SortKey, T]]) -> Page[T]:
        """The page of rows selected as above."""
        shown = rows[: self.size]
        token = self._token(shown[-1][0]) if len(rows) > self.size else ""
        return Page(tuple(item for _, item in shown), token)

    def _token(self, last: SortKey) -> str:
        return _seal(msgspec.msgpack.encode(last), self.secret, self.question)


def _border(key: SortKey, columns: int) -> ColumnElement[Any]:
    # Coerced: a bare parameter has no type of its own within a PostgreSQL row.
    values = (type_coerce(key.time, BigInteger), type_coerce(key.id, TEXT))
    return tuple_(*values[:columns])


def begin(connection: Connection, question: Mapping[str, object], request: PageRequest) -> Walk:
    """The walk that the request asks for. `question`: whatever must stay the same from page to page.

    StaleTokenError for a token of another question or generation, PageSizeError for a negative size.
    """
    if request.size < 0:
        raise PageSizeError("the page size is negative")
    secret = connection.execute(select(meta.c.value).where(meta.c.name == PAGE_SECRET)).scalar_one()
    asked = msgspec.json.encode(question, order="deterministic")
    after = _open(request.token, secret, asked) if request.token else None
    return Walk(min(request.size or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE), after, secret, asked)


def _seal(plain: bytes, secret: bytes, question: bytes) -> str:
    tag = _tag(plain, secret, question)
    return base64.urlsafe_b64encode(tag + _masked(plain, secret, tag)).rstrip(b"=").decode()


def _open(token: str, secret: bytes, question: bytes) -> SortKey:
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise StaleTokenError("the page token is damaged") from None
    tag, masked = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
    plain = _masked(masked, secret, tag)
    if not hmac.compare_digest(tag, _tag(plain, secret, question)):
        raise StaleTokenError(
            "the page token belongs to other parameters, or the list was rebuilt: begin again without it"
        )
    return msgspec.msgpack.decode(plain, type=SortKey)


def _tag(plain: bytes, secret: bytes, question: bytes) -> bytes:
    # The length keeps question and key apart.
    message = len(question).to_bytes(8, "big") + question + plain
    return hmac.digest(secret, message, "sha256")[:_TAG_BYTES]


def _masked(data: bytes, secret: bytes, tag: bytes) -> bytes:
    # A synthetic-IV cipher: the tag is unique to the plain text, so the key stream never repeats for another.
    stream = hashlib.shake_256(secret + tag).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream, strict=True))
