"""Freezes today's schemas as a released version: `python -m schemas.release v2`.

A released version is never changed: its folder says how to read what it wrote. Complete copies, so that a
later change of a nested entity does not change them, and their fingerprints for looking up and for people.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from schemas import avsc
from schemas.codec import fingerprint_of
from schemas.compatibility import problems


class NotReleasedError(Exception):
    """Why the version was not made."""


def check() -> list[str]:
    """What keeps today's schemas from being read by, or from reading, any released version."""
    today = {name: avsc.complete(name) for name in avsc.record_classes()}
    return [
        f"{version}: {problem}"
        for version in avsc.released_versions()
        for problem in problems(avsc.released(version), today)
    ]


def release(version: str) -> Path:
    """Makes the folder of the next version. Refuses incompatible schemas, an old and a skipped version."""
    expected = f"v{len(avsc.released_versions()) + 1}"
    if version != expected:
        raise NotReleasedError(f"the next version is {expected}, not {version}")
    if found := check():
        raise NotReleasedError("\n".join(found))
    folder = avsc.RELEASED / version
    folder.mkdir(parents=True)
    fingerprints = {}
    for name in sorted(avsc.record_classes()):
        schema = avsc.complete(name)
        fingerprints[name] = fingerprint_of(schema).hex()
        text = json.dumps(schema, indent=1, ensure_ascii=False)
        (folder / f"{name}.avsc").write_text(text + "\n", encoding="utf-8")
    (folder / avsc.FINGERPRINTS).write_text(json.dumps(fingerprints, indent=1) + "\n", encoding="utf-8")
    return folder


def main(arguments: list[str]) -> int:
    """The command line."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m schemas.release <version>\n")
        return 2
    try:
        sys.stdout.write(f"{release(arguments[0])}\n")
    except NotReleasedError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
