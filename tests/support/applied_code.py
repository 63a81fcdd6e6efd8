"""The files that applying an entry may run: `statemachine/`, `partitions/`, and their imports."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import lognode

ROOT = Path(lognode.__file__).parent
FOLDERS = ("statemachine", "partitions")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> Iterator[Path]:
    """Yield the files of lognode that a file imports when it is imported."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            yield from filter(Path.is_file, (folder.with_suffix(".py"), folder / "__init__.py"))
            within = (folder / f"{name.name}.py" for name in node.names)
            yield from filter(Path.is_file, within)


def files() -> list[Path]:
    """Return all files with code that applying an entry may run."""
    found: set[Path] = set()
    new = {path for folder in FOLDERS for path in (ROOT / folder).glob("*.py")}
    while new:
        found |= new
        new = {other for path in new for other in imported(path)} - found
    return sorted(found)


def module(path: Path) -> str:
    """Return the dotted name of a file's module, without `lognode.`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)
