"""CONTRIBUTING.md is complete: its lists name every place of a change.

Each list is followed in a copy of the tree, with a dummy. Then the tests that guard the places
pass. With one place left out they fail; that part takes minutes and runs by hand.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
FOLDERS = ("client", "raft", "statemachine", "partitions", "node", "chaos")
MAPPED = sorted(
    str(path.parent.relative_to(ROOT))
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("__init__.py")
    if "_sync" not in path.parts
)
"""The folders with files of the product; client/_sync is generated."""
NOT_COPIED = ("tests/fuzz/corpus/", "docs/performance/", "tests/cluster/", "tests/chaos/")

Edit = Callable[[str], str]


def after(line: str, new: str) -> Edit:
    """Put the new text behind the only line that begins so."""

    def edit(text: str) -> str:
        found = re.findall(rf"^{re.escape(line)}.*\n", text, re.MULTILINE)
        assert len(found) == 1, f"{len(found)} lines begin with {line!r}"
        return text.replace(found[0], found[0] + new)

    return edit


def before(line: str, new: str) -> Edit:
    """Put the new text before the only line that begins so."""

    def edit(text: str) -> str:
        found = re.findall(rf"^{re.escape(line)}", text, re.MULTILINE)
        assert len(found) == 1, f"{len(found)} lines begin with {line!r}"
        return re.sub(rf"^{re.escape(line)}", lambda old: new + old[0], text, flags=re.MULTILINE)

    return edit


def edits(*each: Edit) -> Edit:
    def edit(text: str) -> str:
        for one in each:
            text = one(text)
        return text

    return edit


@dataclass(frozen=True)
class Work:
    """What a list asks for. `places`: each path with an edit, or the script that writes it."""

    places: dict[str, Edit | list[str]]
    guards: list[str]


VERB = Work(
    {
        "client/cli/verbs_NAME.py": lambda _: (
            '"""`lognode dummy`."""\n\nfrom .parser import Parser\n'
            "from .verb import Call, Verb\n\n\n"
            "def _nothing(_: Parser) -> None:\n    return None\n\n\n"
            "async def _dummy(call: Call) -> None:\n    call.printer.rows([], ())\n\n\n"
            'VERBS = (Verb("dummy", "do nothing", _dummy, _nothing),)\n'
        ),
        "client/cli/__init__.py": after(
            "    verbs_bench ", "    verbs_dummy              nothing\n"
        ),
        "client/cli/main.py": edits(
            after("    verbs_cluster,", "    verbs_dummy,\n"),
            after("        *verbs_cluster.VERBS,", "        *verbs_dummy.VERBS,\n"),
        ),
        "client/cli/examples.py": after('    "node list"', '    "dummy": "",\n'),
        "docs/reference-cli.md": ["scripts/reference"],
        "tests/cluster/test_cli.py": after('    "node list": [],', '    "dummy": [],\n'),
    },
    [
        "tests/cluster/test_cli.py::test_every_verb_has_an_example",
        "tests/unit/test_cli_examples.py::test_every_verb_has_an_example_that_parses",
        "tests/unit/test_cli_output.py::test_help_names_every_verb",
        "tests/unit/test_contributing.py::test_the_map_of_each_folder_names_every_file[client/cli]",
        "tests/unit/test_docs.py::test_the_reference_is_what_the_code_says",
    ],
)
MEANING = after('    "token_revoke":', '    "dummy": {"what": "What to do."},\n')
SMALL_BODY = before('    "token_revoke": {"id"', '    "dummy": {"what": 1},\n')
OF_OPERATIONS = [
    "tests/unit/test_command_tables.py::test_each_operation_is_served_and_in_the_sdk",
    "tests/unit/test_client_golden.py::test_every_message_has_its_bytes",
    "tests/unit/test_client_sync.py::test_the_generated_code_is_up_to_date",
    "tests/unit/test_docs.py::test_the_reference_is_what_the_code_says",
    "tests/unit/test_protocol_page.py::test_each_operation_and_each_field_has_its_meaning",
    "tests/unit/test_protocol_page.py::test_no_meaning_is_left_over",
    "tests/unit/test_rights.py::test_every_operation_needs_its_verb[dummy]",
]
OPERATION = Work(
    {
        "client/protocol/cluster.py": edits(
            before(
                "TOKEN_REVOKE: Final",
                'DUMMY: Final = Operation(\n    "dummy", 199, "Do nothing.",\n'
                "    Sender.OPERATOR, Permission.ADMIN, Retry.SAFE,\n"
                '    Record({"what": Integer()}), EMPTY, SMALL_BYTES,\n)\n',
            ),
            after("CLUSTER: Final", "    DUMMY,\n"),
        ),
        "client/protocol/meanings.py": MEANING,
        "node/serving/cluster_service.py": edits(
            after(
                "            cluster.NODE_REKEY: self.node_rekey,",
                "            cluster.DUMMY: self.dummy,\n",
            ),
            before(
                "    async def node_rekey(",
                "    async def dummy(self, _: Body) -> Body:\n        return {}\n\n",
            ),
        ),
        "client/admin.py": edits(
            before("    TOKEN_REVOKE,", "    DUMMY,\n"),
            before(
                "    async def delete_quota(",
                "    async def dummy(self, *, timeout: float | None = None) -> None:\n"
                '        """Do nothing."""\n'
                "        deadline = self._deadline(timeout)\n"
                '        await self._cluster.call_any(DUMMY, {"what": 1}, deadline=deadline)\n\n',
            ),
        ),
        "client/_sync/admin.py": ["scripts/unasync"],
        "docs/protocol.md": ["scripts/protocol"],
        "docs/reference-sdk.md": ["scripts/reference"],
        "tests/golden/wire.txt": [
            "-m", "pytest", "-q", "tests/unit/test_client_golden.py", "--rewrite",
        ],
        "tests/unit/test_rights.py": SMALL_BODY,
    },
    OF_OPERATIONS,
)  # fmt: skip
OPERATION_ON_RANGE = Work(
    {
        "client/protocol/appends.py": edits(
            before(
                "APPENDS: Final",
                'DUMMY: Final = Operation(\n    "dummy", 199, "Do nothing.",\n'
                "    Sender.CLIENT, Permission.APPEND, Retry.SAFE,\n"
                '    Record({**GROUP, "what": Integer(), "node": Optional(Integer())}),\n'
                "    EMPTY, SMALL_BYTES,\n    subject=Subject.RANGE,\n)\n",
            ),
            after("APPENDS: Final", "    DUMMY,\n"),
        ),
        "client/protocol/meanings.py": MEANING,
        "node/serving/data_service.py": edits(
            after("    DELETE_KEYS,", "    DUMMY,\n"),
            after("            FENCE: self.fence,", "            DUMMY: self.dummy,\n"),
            before(
                "    async def fence(",
                "    async def dummy(self, body: Body) -> Body:\n"
                "        self.find(body)\n        return {}\n\n",
            ),
        ),
        "client/log.py": edits(
            before("from .protocol.appends import", "from .protocol.appends import DUMMY\n"),
            before(
                "    async def describe(",
                "    async def dummy(self, key: bytes, *, timeout: float | None = None) -> None:\n"
                '        """Do nothing."""\n'
                "        deadline = self._deadline(timeout)\n"
                '        body = {"what": 1}\n'
                "        await self._cluster.call(\n"
                "            self._routes, key, DUMMY, body, deadline=deadline\n        )\n\n",
            ),
        ),
        "client/_sync/log.py": ["scripts/unasync"],
        "docs/protocol.md": ["scripts/protocol"],
        "docs/reference-sdk.md": ["scripts/reference"],
        "tests/golden/wire.txt": [
            "-m", "pytest", "-q", "tests/unit/test_client_golden.py", "--rewrite",
        ],
        "tests/unit/test_rights.py": SMALL_BODY,
    },
    OF_OPERATIONS,
)  # fmt: skip
METADATA = Work(
    {
        "partitions/commands.py": edits(
            after('PLAN: Final = "plan"', 'DUMMY: Final = "dummy"\n'),
            after("FORWARDED: Final", "    {DUMMY} |\n"),
        ),
        "partitions/proposals.py": after(
            "    commands.SEALING: _OPERATION,", "    commands.DUMMY: _OPERATION,\n"
        ),
        "partitions/metadata.py": after(
            "    commands.REVOKE_INVITE:", "    commands.DUMMY: lambda metadata, command: {},\n"
        ),
        "tests/support/sound_commands.py": after(
            '    commands.SEALING: {"operation": 1},', '    commands.DUMMY: {"operation": 1},\n'
        ),
    },
    [
        "tests/unit/test_command_tables.py::test_each_metadata_command_has_a_handler",
        "tests/unit/test_proposals.py::test_every_command_is_in_the_table",
        "tests/unit/test_proposals.py::test_a_sound_command_is_proposed_as_it_is",
        "tests/unit/test_forwarded_commands.py"
        "::test_every_command_is_handed_on_or_is_the_leaders_own",
    ],
)
RANGE = Work(
    {
        "statemachine/commands.py": edits(
            after("COMPACT: Final = 1", "DUMMY: Final = 90\n"),
            after("    FREEZE: lambda payload", "    DUMMY: lambda payload: payload is None,\n"),
        ),
        "statemachine/range_state.py": before(
            "        if command.kind == commands.RETIRE_PRODUCERS:",
            "        if command.kind == commands.DUMMY:\n            return None, None\n",
        ),
        "tests/support/fuzz_targets.py": lambda text: text.replace(
            "(commands.FREEZE, None),", "(commands.FREEZE, None), (commands.DUMMY, None),"
        ),
    },
    [
        "tests/unit/test_command_tables.py", "tests/unit/test_apply_constants.py",
        "tests/unit/test_range_state.py"
        "::test_an_unknown_command_changes_nothing_and_is_void_after_the_seal",
    ],
)  # fmt: skip
TABLE = Work(
    {
        "statemachine/range_state.py": after(
            '            "next_seq": self.next_seq,', '            "dummy": 1,\n'
        ),
        "statemachine/received_base.py": after(
            '        ("cursors", _are_cursors', '        ("dummy", tables.get("dummy", 1) == 1),\n'
        ),
        "statemachine/clip.py": before('    if tables.get("groups"):', '    tables["dummy"] = 1\n'),
        "statemachine/unite.py": after('            "sealed": None,', '            "dummy": 1,\n'),
    },
    [
        "tests/unit/test_command_tables.py::test_each_table_of_a_base_has_a_rule",
        "tests/unit/test_received_base.py::test_each_table_is_checked",
    ],
)
LISTS = {
    "Add a verb to the command line": VERB,
    "Add an operation": OPERATION,
    "Add an operation on a range": OPERATION_ON_RANGE,
    "Add a replicated command of the metadata": METADATA,
    "Add a replicated command of a range": RANGE,
    "Add a table to the state of a range": TABLE,
}


def places(heading: str) -> list[str]:
    """The paths of the numbered list under the heading."""
    return re.findall(r"^\d+\. `([^`]+)`", section(heading), re.MULTILINE)


def section(heading: str) -> str:
    page = PAGE.read_text("utf-8")
    return page.split(f"\n## {heading}\n")[1].split("\n## ")[0]


class Refused(Exception):
    """A script could not write its file: something before it is missing."""


class Copy:
    """A copy of the tree, in which the places of a list are filled in."""

    def __init__(self, root: Path, work: Work) -> None:
        self.root, self.work = root, work
        self._before: dict[Path, str | None] = {}

    def path(self, place: str) -> Path:
        return self.root / place.replace("NAME", "dummy")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Python knows bytecode by seconds and size, so that a file changed twice keeps old code.
        surroundings = {
            **os.environ, "PYTHONPATH": str(self.root.parent), "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.root, capture_output=True, text=True,
            timeout=240, check=False, env=surroundings,
        )  # fmt: skip

    def fill(self, place: str) -> None:
        path, how = self.path(place), self.work.places[place]
        self._before[path] = path.read_text("utf-8") if path.exists() else None
        if callable(how):
            changed = how(self._before[path] or "")
            assert changed != self._before[path], place
            path.write_text(changed, "utf-8")
        else:
            done = self.run(*how)
            if done.returncode != 0:
                raise Refused(done.stdout + done.stderr)

    def restore(self) -> None:
        for path, text in self._before.items():
            if text is None:
                path.unlink(missing_ok=True)
            else:
                path.write_text(text, "utf-8")

    def guarded(self) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *self.work.guards)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("copy") / "lognode"
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    for name in tracked:
        wanted = not name.startswith(NOT_COPIED) or name == "tests/cluster/test_cli.py"
        if wanted and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    return root


@pytest.mark.parametrize("heading", LISTS)
def test_the_page_names_each_place(heading: str) -> None:
    assert places(heading) == list(LISTS[heading].places)


@pytest.mark.parametrize("heading", LISTS)
def test_the_page_names_the_tests_of_each_list(heading: str) -> None:
    command = re.findall(r"^    pytest (.*)$", section(heading), re.MULTILINE)
    guards = {guard.partition("::")[0] for guard in LISTS[heading].guards}
    assert [set(re.findall(r"tests/\S+", each)) for each in command] == [guards]


@pytest.mark.slow
@pytest.mark.parametrize("heading", LISTS)
def test_following_the_list_is_enough(heading: str, tree: Path) -> None:
    copy = Copy(tree, LISTS[heading])
    try:
        for place in copy.work.places:
            copy.fill(place)
        done = copy.guarded()
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        copy.restore()


@pytest.mark.slow
@pytest.mark.by_hand
@pytest.mark.parametrize(
    ("heading", "left_out"),
    [(heading, place) for heading, work in LISTS.items() for place in work.places],
)
def test_no_place_of_a_list_may_be_left_out(heading: str, left_out: str, tree: Path) -> None:
    copy = Copy(tree, LISTS[heading])
    try:
        for place in copy.work.places:
            if place != left_out:
                copy.fill(place)
    except Refused:
        return  # a script misses the place already
    else:
        # 2 and 4 mean that a guard cannot even be loaded. All exist: the test above has run them.
        assert copy.guarded().returncode != 0
    finally:
        copy.restore()


@pytest.mark.parametrize("folder", MAPPED)
def test_the_map_of_each_folder_names_every_file(folder: str) -> None:
    text = (ROOT / folder / "__init__.py").read_text("utf-8")
    named = set(re.findall(r"\w+", text))
    files = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__", "__main__"}
    assert not files - named, "say in the folder's __init__.py what they are for"


def test_the_commands_of_the_page_exist() -> None:
    page = PAGE.read_text("utf-8")
    for script in set(re.findall(r"\bscripts/(\w+)\b(?!\.)", page)):
        assert (ROOT / "scripts" / script).exists(), script
    for path in set(
        re.findall(r"`((?:client|node|partitions|statemachine|tests|docs)/[^`*\s]+)`", page)
    ):
        assert (ROOT / path).exists() or "NAME" in path, path
