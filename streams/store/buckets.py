"""Folders and object stores by one library: local folders, Amazon S3 and what speaks like it, Google, Azure.

Owns: everything about obstore, which only this module imports. Credentials and endpoints come from the
environment variables that each cloud's own tools read (`AWS_…`, `GOOGLE_…`, `AZURE_…`). May not know: what
the objects are.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from obstore.exceptions import BaseError
from obstore.store import LocalStore, from_url

from streams.store.objects import PIECE_BYTES, MissingObject, ObjectsError, check_path

if TYPE_CHECKING:  # of the library's names, these exist for type checkers alone
    from obstore.store import ObjectStore, RetryConfig

SCHEMES = ("s3", "gs", "az", "file", "memory")
PART_BYTES = 8 * 1024 * 1024
PARTS = 4
"""Of one object, on their way at once: 32 MiB of memory."""
RETRY: "RetryConfig" = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
"""Shorter than the library's: a take-over waits for the answer, and has the log to fall back on."""


class BucketObjects:
    """`Objects` on a store of obstore's."""

    def __init__(self, store: "ObjectStore") -> None:
        self._store = store

    def put(self, path: str, content: BinaryIO) -> None:
        check_path(path)
        with _errors(path):
            self._store.put(path, content, chunk_size=PART_BYTES, max_concurrency=PARTS)

    def get(self, path: str) -> Iterator[bytes]:
        with _errors(path):
            return self._pieces(path, iter(self._store.get(path).stream(min_chunk_size=PIECE_BYTES)))

    @staticmethod
    def _pieces(path: str, stream: Iterator[bytes]) -> Iterator[bytes]:
        with _errors(path):
            yield from stream

    def list(self, folder: str) -> dict[str, int]:
        with _errors(folder):
            return {each["path"]: each["size"] for part in self._store.list(folder) for each in part}

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                with _errors(path):
                    self._store.delete(path)
            except MissingObject:
                continue


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise MissingObject(f"{path} is not there") from error
    except (BaseError, OSError, ValueError) as error:
        # What follows the first line is for those who debug the library.
        raise ObjectsError(f"{path}: {str(error).strip().partition(chr(10))[0]}") from error


def open_objects(place: str) -> BucketObjects:
    """`place`: a folder, made if it is not there, or the URL of a bucket and a prefix in it, such as
    `s3://bucket/prefix`. ObjectsError if it cannot be used at all."""
    scheme, separator, _ = place.partition("://")
    if separator and scheme not in SCHEMES:
        raise ObjectsError(f"{place}: a folder, or a URL that begins with one of {', '.join(SCHEMES)}")
    with _errors(place):
        if not separator:
            return BucketObjects(LocalStore(Path(place).absolute(), mkdir=True))
        if scheme in {"file", "memory"}:
            return BucketObjects(from_url(place))
        # No client options: given here, they would take the place of those in the environment.
        return BucketObjects(from_url(place, retry_config=RETRY))
