"""A store's files in a folder of their own, on their way out (frozen) or in (incoming).

Owns: folders beside the partitions. May not know: RocksDB, or where the files go to and come from.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from streams.store.kv import check_file_name


class FolderFrozen:
    def __init__(self, path: Path) -> None:
        self._path = path

    def files(self) -> dict[str, int]:
        return {each.name: each.stat().st_size for each in sorted(self._path.iterdir())}

    def read(self, name: str) -> BinaryIO:
        return (self._path / name).open("rb")

    def close(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


class FolderIncoming:
    """Nothing is made before the first file comes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        check_file_name(name)
        self._path.mkdir(exist_ok=True)
        with (self._path / name).open("wb") as file:
            file.writelines(chunks)
            file.flush()
            # The store itself never syncs: what it loses with its machine, replay restores. A file cut short
            # here would be a hole instead, in a store that says that it is whole.
            os.fsync(file.fileno())

    def complete(self) -> None:
        """To be called before what is there is given up for it. ValueError if nothing was written."""
        if not self._path.is_dir():
            raise ValueError("no store: nothing was received")
        sync_folder(self._path)

    def move(self, target: Path) -> None:
        self._path.rename(target)

    def close(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


def sync_folder(path: Path) -> None:
    """Names in a folder are as lasting as its files only after this."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
