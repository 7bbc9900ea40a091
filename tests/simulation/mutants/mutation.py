"""What a mutation is: a deliberate break of product code, in one interpreter, for good."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

PRODUCT = ("streams.", "api.", "schemas.")


@dataclass(frozen=True, slots=True)
class Mutation:
    """`breaks` says in words what the product does not do any more; `apply` does it."""

    name: str
    breaks: str
    apply: Callable[[], None]


def change(
    owner: type | ModuleType,
    name: str,
    make: Callable[[Any], Any],
    put: Callable[[Any, str, Any], None] = setattr,
) -> None:
    """Replaces a function or method by what `make` makes of it, also where it was imported by name; by means
    of `put`, which a test can undo."""
    original = getattr(owner, name)
    changed = make(original)
    put(owner, name, changed)
    if isinstance(owner, ModuleType):
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith(PRODUCT) and getattr(module, name, None) is original:
                put(module, name, changed)
