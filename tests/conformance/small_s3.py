"""As much of Amazon's S3 as keeping snapshots takes, on loopback: put, get, list, delete, uploads in parts.

It tells whether we and the library speak S3 over HTTP. It checks no signature, and is no proof that a
particular cloud behaves.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _target(self) -> tuple[str, dict[str, str]]:
        """Key within the bucket, and the query."""
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix("/bucket").lstrip("/")
        query = parse_qs(parts.query, keep_blank_values=True)
        return key, {name: values[0] for name, values in query.items()}

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _say(self, what: str, content: str) -> None:
        self._answer(200, f"<{what}>{content}</{what}>".encode())

    def do_PUT(self) -> None:
        key, query = self._target()
        body = self._body()
        if "uploadId" in query:
            self.server.parts[query["uploadId"]][int(query["partNumber"])] = body
        else:
            self.server.objects[key] = body
        self._answer(200, ETag=f'"{len(body)}"')

    def do_GET(self) -> None:
        key, query = self._target()
        if "list-type" in query:
            self._list(query.get("prefix", ""))
        elif key in self.server.objects:
            dated = {"Last-Modified": "Sun, 29 Nov 2026 00:00:00 GMT"}
            self._answer(200, self.server.objects[key], ETag='"1"', **dated)
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _list(self, prefix: str) -> None:
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(body)}</Size><ETag>1</ETag>"
            "<LastModified>2026-11-29T00:00:00.000Z</LastModified></Contents>"
            for key, body in sorted(self.server.objects.items())
            if key.startswith(prefix)
        )
        self._answer(
            200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()
        )

    def do_POST(self) -> None:
        key, query = self._target()
        body = self._body()
        if "uploads" in query:
            upload = f"upload-{len(self.server.parts)}"
            self.server.parts[upload] = {}
            self._say("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
        elif "uploadId" in query:
            parts = self.server.parts.pop(query["uploadId"])
            self.server.objects[key] = b"".join(parts[number] for number in sorted(parts))
            self._say("CompleteMultipartUploadResult", "<ETag>1</ETag>")
        else:
            elements = ElementTree.fromstring(body).iter()
            deleted = [each.text or "" for each in elements if each.tag.endswith("Key")]
            for each in deleted:
                self.server.objects.pop(each, None)
            done = "".join(f"<Deleted><Key>{escape(each)}</Key></Deleted>" for each in deleted)
            self._say("DeleteResult", done)

    def do_DELETE(self) -> None:
        key, _ = self._target()
        self.server.objects.pop(key, None)
        self._answer(204)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.parts: defaultdict[str, dict[int, bytes]] = defaultdict(dict)


class SmallS3:
    """Runs while it is entered; its one bucket is named `bucket`."""

    def __enter__(self) -> Self:
        self._server = _Server()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
