"""What is made of parts that begin one after the other: a stage, a tour."""

from contextlib import ExitStack
from types import TracebackType
from typing import Self


class Opening:
    """Leaving the context ends what `_start` put on `_open`, last first; so does a start that fails."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def _start(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
