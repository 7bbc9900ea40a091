"""HTTP/1.1 for load: one keep-alive connection that costs little, for it shares the machine with the server.

Bodies are sent as given and answered as bytes. May not know what the API means.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

READ_BYTES = 16 * 1024 * 1024
"""A full claim is about a megabyte."""


class Refused(Exception):
    """An answer that the benchmark cannot go on with."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, `Horarium-Position` if there was one, and body."""

    status: int
    position: str
    body: bytes

    def expect(self, *statuses: int) -> bytes:
        """The body, or Refused."""
        if self.status not in statuses:
            raise Refused(f"HTTP {self.status}: {self.body[:500].decode(errors='replace')}")
        return self.body


class Connection:
    """One request at a time; opened by the first one, and again if the server closed it in between."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._fixed = f"Host: {self._host}\r\nAuthorization: Bearer {key}\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def get(self, path: str, headers: str = "") -> Answer:
        """`headers`: whole lines, each with its line end."""
        return await self._ask(f"GET {path} HTTP/1.1\r\n{self._fixed}{headers}\r\n".encode())

    async def post(self, path: str, body: bytes, headers: str = "", *, method: str = "POST") -> Answer:
        """`body` is JSON."""
        head = (
            f"{method} {path} HTTP/1.1\r\n{self._fixed}{headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return await self._ask(head.encode() + body)

    async def _ask(self, request: bytes) -> Answer:
        if self._writer is None or self._reader is None or self._reader.at_eof():
            await self.close()
            self._reader, self._writer = await asyncio.open_connection(
                self._host, self._port, limit=READ_BYTES
            )
        self._writer.write(request)
        await self._writer.drain()
        try:
            return await _answer(self._reader)
        except BaseException:
            # Half an answer would be taken for the next one's beginning.
            self._writer.close()
            self._writer = None
            raise

    async def close(self) -> None:
        """Closes the connection."""
        if self._writer is not None:
            self._writer.close()
            try:
                await self._writer.wait_closed()
            except OSError:
                pass  # it is closed, whatever the server thinks
            self._writer = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _answer(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Answer(int(lines[0].split(" ", 2)[1]), headers.get("horarium-position", ""), body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(parts)
