"""The tree keeps its own rules: sizes, docstrings, import directions, nothing left over."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("client", "raft", "statemachine", "partitions", "node", "chaos")
MAY_IMPORT = {
    "client": {"client"},
    "raft": {"raft", "client"},
    "statemachine": {"statemachine", "client"},
    "partitions": {"partitions", "client", "statemachine"},
    "node": {"node", "client", "raft", "statemachine", "partitions"},
    "chaos": {"chaos", "client"},
    "chaos/sim": {*FOLDERS},
    "chaos/whole": {*FOLDERS},
}
SANS_IO = ("raft", "statemachine", "partitions")
SANS_IO_FORBIDDEN = {"asyncio", "socket", "time", "random", "threading", "datetime"}
SANS_IO_EXCEPTIONS = {
    "raft/engine.py": "sets the library's clock and random source, hands ours to it",
    "raft/os_disk.py": "is the disk itself: the loop reads from it while a thread writes",
    "statemachine/write_back.py": "paces the builder process, of which no result depends on it",
}
LINES_MAX, FUNCTION_MAX, FILE_MAX = 100, 70, 700
LONG_FUNCTIONS: dict[str, str] = {}
"""`file:function`: reason."""

CALLED_FROM_OUTSIDE = {
    "raft/journal.py:_destroy": "the library calls it when it is destroyed",
    "raft/engine.py:_SyncObj__doApplyCommand": "replaces a method of the library",
    "chaos/whole/loop.py:_run_once": "asyncio calls it",
    "chaos/whole/loop.py:_timer_handle_cancelled": "asyncio calls it",
    "chaos/whole/loop.py:_asyncgen_finalizer_hook": "asyncio calls it",
    "chaos/whole/loop.py:_process_events": "asyncio calls it",
    "chaos/whole/loop.py:_write_to_self": "asyncio calls it",
    "raft/engine.py:_SyncObj__parseChangeClusterRequest": "replaces a method of the library",
}
OBJECTS_OF_OTHERS = {
    "node/access/visible.py:error.fields": "an error of the protocol is made for its reader",
    "node/certificates/tls.py:handshake.context": "an object of Python's ssl",
    "node/runtime/logs.py:root.handlers": "an object of Python's logging",
}

ROOMS = (
    "local", "verify", "serve_tier", "reactions", "joining", "listeners", "serving", "web", "door",
    "kafka", "links", "control", "upkeep", "tier", "lifecycle", "access", "audit", "load",
    "replicas", "dispatch", "rules", "quota", "metadata", "certificates", "directory", "runtime",
)  # fmt: skip
"""Of node/: each uses only those that follow it, and `config` and `metrics`."""


SAYS_NOTHING = {
    "bugs", "cooling", "data", "held", "helpers", "hot", "large", "loads", "marks", "misc",
    "portion", "rows", "shares", "small", "steps", "things", "turns", "util", "utils",
}  # fmt: skip
"""Names of files that do not say what the file is about."""


def modules() -> list[Path]:
    found = [ROOT / "__init__.py", ROOT / "testing.py"]
    for folder in FOLDERS:
        found += sorted((ROOT / folder).rglob("*.py"))
    return [path for path in found if path.exists()]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path, tree: ast.Module) -> Iterator[str]:
    """Imported modules: absolute names, ours as `folder.module`."""
    package = list(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("lognode.") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                yield (node.module or "").removeprefix("lognode.")
                continue
            base = package[: len(package) - node.level + 1]
            module = ".".join([*base, *([node.module] if node.module else [])])
            if node.module and module not in FOLDERS:
                yield module
            else:
                yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_module_is_tidy(path: Path) -> None:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    lines = text.splitlines()
    assert ast.get_docstring(tree), "a module without a docstring"
    assert len(lines) <= FILE_MAX, f"{len(lines)} lines; at most {FILE_MAX}"
    long_lines = [i for i, line in enumerate(lines, 1) if len(line) > LINES_MAX]
    assert not long_lines, f"lines over {LINES_MAX} characters: {long_lines}"
    left_over = [i for i, line in enumerate(lines, 1) if re.search(r"\b(TODO|FIXME|XXX)\b", line)]
    assert not left_over, f"left over: {left_over}"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if f"{name_of(path)}:{node.name}" not in LONG_FUNCTIONS:
                assert size <= FUNCTION_MAX, f"{node.name} has {size} lines"
            assert node.returns is not None, f"{node.name} has no return type"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"bare except at line {node.lineno}"


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    name = name_of(path)
    folder = name.split("/")[0]
    if folder not in FOLDERS:
        return
    room = "/".join(name.split("/")[:2])
    rule = room if room in MAY_IMPORT else folder
    for module in imports(path, ast.parse(path.read_text("utf-8"))):
        top = module.split(".")[0]
        if top in FOLDERS:
            assert top in MAY_IMPORT[rule], f"{name} imports {module}"
            if folder in ("raft", "statemachine") and top == "client":
                # The protocol, not the SDK.
                assert module.startswith("client.protocol"), f"{name} imports {module}"
        if folder in SANS_IO and name not in SANS_IO_EXCEPTIONS:
            allowed_for_types = top == "random" and "rng: random.Random" in path.read_text()
            assert top not in SANS_IO_FORBIDDEN or allowed_for_types, f"{name} imports {module}"
        assert top not in ("pickle", "marshal", "shelve"), f"{name} imports {module}"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_of_the_node_uses_only_rooms_below_it(room: str) -> None:
    allowed = {room, *ROOMS[ROOMS.index(room) + 1 :], "config", "metrics"}
    for path in sorted((ROOT / "node" / room).glob("*.py")):
        for module in imports(path, ast.parse(path.read_text("utf-8"))):
            if module.startswith("node."):
                assert module.split(".")[1] in allowed, f"{name_of(path)} imports {module}"


def targets(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what is assigned to or deleted; of an element of a container, the container."""
    for node in ast.walk(tree):
        context = getattr(node, "ctx", None)
        if isinstance(node, ast.Attribute) and isinstance(context, ast.Store | ast.Del):
            yield node
        elif isinstance(node, ast.Subscript) and isinstance(context, ast.Store | ast.Del):
            yield node.value


def fields_of(tree: ast.Module) -> set[str]:
    """Return the attributes that the classes of a module have."""
    found = {t.attr for t in targets(tree) if isinstance(t, ast.Attribute) and is_own(t)}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)  # a property
    return found


def is_own(target: ast.Attribute) -> bool:
    return isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")


def test_only_the_file_of_a_class_changes_the_attributes_of_its_objects() -> None:
    """Other files call a method whose name says what happens. Otherwise nobody sees in the class
    who changes an attribute, and when. Names stand for attributes, since types are not known here:
    so a file may change attributes whose names its own classes have too."""
    folders = (path for path in modules() if name_of(path).split("/")[0] in (*SANS_IO, "node"))
    trees = {path: ast.parse(path.read_text("utf-8")) for path in folders}
    fields = {path: fields_of(tree) for path, tree in trees.items()}
    every = set().union(*fields.values())
    for path, tree in trees.items():
        if name_of(path).startswith("node/"):
            found = [t for t in targets(tree) if isinstance(t, ast.Attribute) and not is_own(t)]
            foreign = every - fields[path]
            bad = {f"{name_of(path)}:{ast.unparse(t)}" for t in found if t.attr in foreign}
            assert not bad - OBJECTS_OF_OTHERS.keys(), bad


def test_the_rules_of_a_replicas_life_do_no_io() -> None:
    """The simulator carries out the same rules in a simulated world."""
    forbidden = {*SANS_IO_FORBIDDEN, "os", "pathlib", "logging", "shutil", "subprocess", "lmdb"}
    pure = ((ROOT / "node" / room).glob("*.py") for room in ("rules", "dispatch"))
    for path in sorted(itertools.chain(*pure)):
        text = path.read_text("utf-8")
        for module in imports(path, ast.parse(text)):
            assert module.split(".")[0] not in forbidden, f"{name_of(path)} imports {module}"
            if module.startswith("node."):
                keys = module == "node.directory" and "import meta_keys\n" in text
                own = module.startswith(f"node.{path.parent.name}")
                assert keys or own, f"{name_of(path)} imports {module}"


def test_every_file_of_the_node_is_in_a_room_and_in_its_map() -> None:
    top = {path.name for path in (ROOT / "node").iterdir() if path.suffix == ".py"}
    assert top == {"__init__.py", "main.py", "config.py", "daemon.py", "metrics.py"}
    assert {path.parent.name for path in (ROOT / "node").glob("*/*.py")} == set(ROOMS)
    for room in ROOMS:
        told = ast.get_docstring(ast.parse((ROOT / "node" / room / "__init__.py").read_text()))
        files = {path.stem for path in (ROOT / "node" / room).glob("*.py")} - {"__init__"}
        missing = {name for name in files if not re.search(rf"\b{name}\b", told or "")}
        assert not missing, f"{room}: {missing}"


def test_the_protocol_uses_nothing_else_of_lognode() -> None:
    for path in sorted((ROOT / "client" / "protocol").glob("*.py")):
        for module in imports(path, ast.parse(path.read_text("utf-8"))):
            if module.split(".")[0] in FOLDERS:
                assert module.startswith("client.protocol."), f"{name_of(path)} imports {module}"


def test_only_the_engine_imports_the_library() -> None:
    for path in modules():
        found = set(imports(path, ast.parse(path.read_text("utf-8"))))
        if any(module.split(".")[0] == "pysyncobj" for module in found):
            assert name_of(path) == "raft/engine.py"


def test_only_the_spark_folder_imports_spark() -> None:
    for path in modules():
        found = {m.split(".")[0] for m in imports(path, ast.parse(path.read_text("utf-8")))}
        if found & {"pyspark", "pandas"}:
            assert name_of(path).startswith("client/spark/")


def test_private_functions_are_used() -> None:
    for path in modules():
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                private = node.name.startswith("_") and not node.name.startswith("__")
                if private and f"{name_of(path)}:{node.name}" not in CALLED_FROM_OUTSIDE:
                    uses = len(re.findall(rf"\b{node.name}\b", text))
                    assert uses > 1, f"{path}: {node.name} is unused"


def test_the_name_of_a_file_says_what_the_file_is_about() -> None:
    vague = [str(path.relative_to(ROOT)) for path in modules() if path.stem in SAYS_NOTHING]
    assert not vague, "give each a name by which a stranger finds it"


def test_every_package_is_listed() -> None:
    import tomllib

    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    present = {"lognode"} | {
        "lognode." + path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for path in modules()
        if path.name == "__init__.py" and path.parent != ROOT
    }
    assert set(listed) == present
