"""The constants of the program that functions may read: those that ran, on any of their branches.

A constant is followed to where the tree gives its value: `PINNED = 2 * limits.leases_max` leads to
`client.protocol.limits.leases_max`.
"""

import ast
import dis
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from applied_code import ROOT, tree

PACKAGE = "lognode."
COMPILED = (
    "lognode.client.protocol._native",
    "lognode.client.protocol._packing",
    "lognode.statemachine._memtable",
    "lognode.statemachine._building",
)
Ran = dict[CodeType, str]
"""The functions that ran, and the names of their modules."""


def ran(act: Callable[[], object]) -> Ran:
    """Return the functions of lognode that run while `act` runs."""
    found: Ran = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code not in found:
            name = frame.f_globals.get("__name__", "")
            if name.startswith(PACKAGE):
                found[frame.f_code] = name

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return found


class Reads:
    """Follows names to constants."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        """`client.protocol.limits.leases_max` and so on, with the values."""
        self._seen: set[tuple[str, str]] = set()

    def of_code(self, code: CodeType, module: str) -> None:
        """Follow all names that the function and its inner functions read."""
        before: tuple[str, ModuleType] | None = None
        for step in dis.get_instructions(code):
            if before is not None and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                self.of_name(before[1].__name__, str(step.argval))
            before = None
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                value = vars(sys.modules[module]).get(step.argval)
                if isinstance(value, ModuleType):
                    before = (step.argval, value)
                else:
                    self.of_name(module, step.argval)
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self.of_code(inner, module)

    def of_name(self, module: str, name: str) -> None:
        """Follow a name of a module. The compiled functions have no constants of their own: they
        do what their twins do."""
        if not module.startswith(PACKAGE) or (module, name) in self._seen or module in COMPILED:
            return
        self._seen.add((module, name))
        path = source(module)
        for node in tree(path).body:
            match node:
                case ast.ImportFrom(module=other, level=level, names=names) if level:
                    for alias in names:
                        if (alias.asname or alias.name) == name:
                            parts = module.split(".")[: -level or None]
                            if path.name == "__init__.py":
                                parts = module.split(".")[: 1 - level or None]
                            self.of_name(".".join([*parts, *filter(None, [other])]), alias.name)
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    self._of_value(module, name, value)
                case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if (
                    target == name
                ):
                    self._of_value(module, name, value)
                case ast.ClassDef(name=target, body=body) if target == name:
                    for expression in class_values(body):
                        self._of_expression(module, expression)

    def _of_value(self, module: str, name: str, value: ast.expr) -> None:
        """Note a constant that is written down here, or follow what it is made of."""
        if not self._of_expression(module, value):
            found = getattr(sys.modules[module], name)
            if type(found) in (int, float, str, bytes, tuple, frozenset):
                self.constants[f"{module.removeprefix(PACKAGE)}.{name}"] = found

    def _of_expression(self, module: str, value: ast.expr) -> bool:
        """Follow the names of an expression. Return whether it has any."""
        has = False
        known = vars(sys.modules[module])
        for node in ast.walk(value):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                    if isinstance(known.get(name), ModuleType):
                        self.of_name(known[name].__name__, attribute)
                        has = has or known[name].__name__.startswith(PACKAGE)
                case ast.Name(id=name) if name in known:
                    self.of_name(module, name)
                    own = not isinstance(known[name], type | ModuleType)
                    has = has or (own and not callable(known[name]))
        return has


def class_values(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """Yield the values that a class gives its fields, and the defaults of its methods."""
    for node in body:
        match node:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                yield value
            case ast.FunctionDef(args=arguments):
                yield from arguments.defaults
                yield from filter(None, arguments.kw_defaults)


def source(module: str) -> Path:
    """Return the file of a module of lognode."""
    path = ROOT.joinpath(*module.removeprefix(PACKAGE).split("."))
    file = path.with_suffix(".py")
    return file if file.is_file() else path / "__init__.py"
