"""Constants of other modules and classes as constants of the module that uses them, for one that is compiled.

Python 3.11 remembers where it found `Status.RUNNING`; machine code looks the class up in its module and the
member in its class each time, some 650 instructions, and an execution reads a hundred such. A `Final` of the
module is one load. So the compiled copy of a module gets one for each constant that its functions read of a
name that it imports, and the source stays as it reads best. Lines stay where they are.
"""

import ast
import symtable
from collections.abc import Collection

_Span = tuple[int, int, int]
"""Line, and columns from and to, in bytes."""


def hoisted(source: str) -> str:
    """The module with its constants, which are what is named in capitals."""
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = [line.encode() for line in source.split("\n")]
    constants: dict[str, str] = {}
    # From the end: what is replaced moves nothing that is still to be replaced.
    names = _imported(imports) - _own(symtable.symtable(source, "", "exec"))
    for (line, start, end), read in sorted(_reads(tree, names).items(), reverse=True):
        constant = constants.setdefault(read, f"_hoisted_{read.replace('.', '_')}")
        lines[line] = lines[line][:start] + constant.encode() + lines[line][end:]
    if constants:
        made = [f"{constant}: _Final = {read}" for read, constant in sorted(constants.items())]
        line, end = (imports[-1].end_lineno or 0) - 1, imports[-1].end_col_offset or 0
        added = "; ".join(["", "from typing import Final as _Final", *made]).encode()
        lines[line] = lines[line][:end] + added + lines[line][end:]
    return b"\n".join(lines).decode()


def _imported(imports: list[ast.Import | ast.ImportFrom]) -> set[str]:
    return {name.asname or name.name for node in imports for name in node.names}


def _own(scope: symtable.SymbolTable) -> set[str]:
    """Names that some function has for itself: there they are not what was imported."""
    is_function = scope.get_type() == "function"
    names = {symbol.get_name() for symbol in scope.get_symbols() if is_function and symbol.is_local()}
    return names.union(*map(_own, scope.get_children()))


def _reads(tree: ast.Module, names: Collection[str]) -> dict[_Span, str]:
    """Constants of these names that are read when a function runs. A pattern needs the name with its dot, or
    it would be one that matches anything."""
    nodes = list(ast.walk(tree))
    patterns = {part for node in nodes if isinstance(node, ast.pattern) for part in ast.walk(node)}
    bodies = [part for node in nodes if isinstance(node, ast.FunctionDef) for part in node.body]
    return {
        (node.lineno - 1, node.col_offset, node.end_col_offset or 0): f"{node.value.id}.{node.attr}"
        for part in bodies
        for node in ast.walk(part)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id in names
        and node.attr.isupper()
        and node not in patterns
    }
