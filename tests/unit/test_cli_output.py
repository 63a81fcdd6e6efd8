"""The printer, the parser and the exit codes of the command line."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from lognode.client.cli import main, parser, progress, verbs_nodes, verbs_ranges
from lognode.client.cli.clusters import where
from lognode.client.cli.printer import FORMATS, Printer
from lognode.client.protocol import errors
from lognode.client.protocol.types import UNCHANGED
from lognode.node.main import main as lognode

ROWS: list[dict[str, Any]] = [
    {"key": b"k", "value": b"line\nbreak\t\x1b[31m", "tags": [b"a", b"b"], "more": 1},
    {"key": b"\xff", "value": None, "tags": [], "more": 2},
]
COLUMNS = ("key", "value", "tags")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(format_: str, out: io.StringIO) -> str:
    Printer(format_, out).rows(ROWS, COLUMNS)
    return out.getvalue()


def test_a_pipe_gets_tabs_and_one_line_a_row() -> None:
    assert printed("table", io.StringIO()).splitlines() == [
        "k\tline\\nbreak\\t\\u001b[31m\ta,b",
        '{"b64": "/w=="}\t-\t-',
    ]


def test_an_empty_value_differs_from_a_tombstone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [{"key": b"k", "value": value} for value in (b"", None)]
    for out, gap in ((io.StringIO(), "\t"), (Terminal(), "    ")):
        Printer("table", out).rows(rows, ("key", "value"))
        assert out.getvalue().splitlines()[-2:] == [f"k{gap}".rstrip(" "), f"k{gap}-"]


def test_a_terminal_gets_aligned_columns_with_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    head, first, second = printed("table", Terminal()).splitlines()
    assert head.split() == ["KEY", "VALUE", "TAGS"]
    assert first.index("line") == second.index("-") == head.index("VALUE")
    monkeypatch.delenv("NO_COLOR")
    assert printed("table", Terminal()).startswith("\x1b[1mKEY")


def test_wide_and_reordering_characters_keep_their_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    keys = ["k", "Straße", "e\u0301", "日本", "🙂", "a\u202eb"]
    rows = [{"key": key.encode(), "value": b"|"} for key in keys]
    out = Terminal()
    Printer("table", out).rows(rows, ("key", "value"))
    assert out.getvalue().splitlines()[1:] == [
        "k         |", "Straße    |", "e\u0301         |", "日本      |", "🙂        |",
        "a\\u202eb  |",
    ]  # fmt: skip


def test_a_terminal_shows_heads_and_utc_above_rows_that_come_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`scan`, `keys` and `follow` printed tabs and numbers on a terminal too."""
    monkeypatch.setenv("NO_COLOR", "1")
    rows: list[dict[str, Any]] = [
        {"key": b"k", "timestamp_ms": 1_357_035_420_000, "value": b"x"},
        {"key": b"longer", "timestamp_ms": 1 << 62, "value": None},
    ]
    columns = ("key", "timestamp_ms", "value")

    async def stream() -> AsyncIterator[dict[str, Any]]:
        for row in rows:
            yield row

    shown = [
        "KEY  TIME                      VALUE",
        "k    2013-01-01T10:17:00.000Z  x",
        f"longer  {1 << 62}       -",
    ]
    streamed, lines = Terminal(), Terminal()
    asyncio.run(Printer("table", streamed).stream(stream(), columns))
    assert streamed.getvalue().splitlines() == shown
    printer = Printer("table", lines)
    for row in rows:
        printer.line(row, columns)
    assert lines.getvalue().splitlines() == shown
    printer.line({"key": b"k"}, ("key",))
    assert lines.getvalue().splitlines()[-2:] == ["KEY", "k"], "other columns have a head too"
    table = Terminal()
    Printer("table", table).rows(rows[:1], columns)
    assert table.getvalue().splitlines() == shown[:2]
    pipe = io.StringIO()
    asyncio.run(Printer("table", pipe).stream(stream(), columns))
    assert pipe.getvalue().splitlines()[0] == "k\t1357035420000\tx", "pipes are as before"


def test_json_holds_whole_rows() -> None:
    expected = [
        {"key": "k", "value": "line\nbreak\t\x1b[31m", "tags": ["a", "b"], "more": 1},
        {"key": {"b64": "/w=="}, "value": None, "tags": [], "more": 2},
    ]
    assert json.loads(printed("json", io.StringIO())) == expected
    lines = printed("jsonl", io.StringIO()).splitlines()
    assert [json.loads(line) for line in lines] == expected


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("format_", FORMATS)
def test_streams_are_whole_documents(format_: str, count: int) -> None:
    async def rows() -> AsyncIterator[dict[str, Any]]:
        for row in ROWS[:count]:
            yield row

    out = io.StringIO()
    asyncio.run(Printer(format_, out).stream(rows(), COLUMNS))
    text = out.getvalue()
    if format_ == "json":
        assert len(json.loads(text)) == count
    else:
        assert len(text.splitlines()) == count


@pytest.mark.parametrize(
    ("error", "writes", "code"),
    [
        (errors.InvalidArgument("x"), True, 1),
        (errors.LimitExceeded("x", limit="l", value=1, allowed=0), True, 1),
        (errors.Unavailable("x"), True, 1),
        (errors.Unauthorized("x"), False, 1),
        (errors.LogNotFound("x", log="l"), True, 4),
        (errors.NodeNotFound("x", node=1), False, 4),
        (errors.SequenceMismatch("x", key=b"", expected=1, actual=2), True, 5),
        (errors.LogExists("x", log="l"), True, 5),
        (errors.Fenced("x", epoch=1), True, 5),
        (errors.OperationInProgress("x"), True, 5),
        (errors.Timeout("x"), True, 6),
        (errors.Unavailable("x", outcome="unknown"), True, 6),
        (errors.PartialFailure("x"), True, 6),
        (errors.PartialFailure("x", outcome="not_applied"), True, 1),
        (errors.Timeout("x"), False, 1),
    ],
)
def test_S11_exit_codes(error: errors.LognodeError, writes: bool, code: int) -> None:
    assert main.exit_code(error, writes=writes) == code


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["foo"], "no verb 'foo'"),
        (
            ["log"],
            "`lognode log` needs a second word: create or list or describe or alter or delete",
        ),
        (["latest", "l"], "the following arguments are required: KEY"),
        (["scan", "l", "k", "--from", "tomorrow"], "is not a position"),
        (["scan", "l", "--from", "2026-13-01"], "'2026-13-01' is not a time; write 2026-11-28T16"),
        (["scan", "l", "k", "--prefix", "p"], "give only one of KEY, --prefix and --pattern"),
        (["count", "l", "--prefix", "p", "--pattern", "p*"], "give only one of KEY, --prefix"),
        (["scan", "l", "--reverse"], "name a KEY, or leave --reverse out"),
        (["scan", "l", "k", "-n", "-3"], "'-3' is not a whole number"),
        (["count", "l", "k", "--form", "json"], "unrecognized arguments: --form json"),
        (["count", "l", "k", "--format", "xml"], "invalid choice: 'xml'"),
        (["count", "l", "k", "--timeout", "soon"], "is not an age; write 30s, 10m, 12h or 7d"),
        (["append", "l", "k"], "give VALUE, - for lines of standard input, or --tombstone"),
        (["append", "l", "k", "v", "--tombstone"], "give VALUE, - "),
        (["append", "l", "k", "-", "--expect", "3"], "needs a single VALUE"),
        (["append", "l", "k", "v", "--expect", "x"], "write any, absent or a seq"),
        (["append", "l", "k", "v", "--header", "a"], "--header is 'a'; give NAME=VALUE"),
        (["append", "l", "k", "-", "--header", "=a"], "--header is '=a'; give NAME=VALUE"),
        (["append", "l", "k", "v", "--header", "a=1", "--header", "a=2"], "each NAME once"),
        (["follow", "l", "k", "--prefix", "p"], "give only one of KEYs, --prefix and --pattern"),
        (["scan", "l", "k", "--to", "latest"], "is not an end; write a seq, -10m"),
        (["trim", "l", "k"], "the following arguments are required: --before"),
        (["trim", "l", "k", "--before", "-1"], "'-1' is not a whole number"),
        (["log", "alter", "l"], "no change is given; give --retention,"),
        (["log", "alter", "l", "--replicas", "5"], "cannot change; create a log with --repl"),
        (["log", "alter", "l", "--retention", "long"], "'long' is not an age"),
        (["log", "create", "l", "--retention", "7"], "'7' has no unit; write 7d, 7h or 7s"),
        (
            ["log", "create", "l", "--retention-bytes", "9G"],
            "a number of bytes, 512MiB, 10GB or none",
        ),
        (["log", "create", "l", "--cleanup", "never"], "invalid choice: 'never'"),
        (["log", "create", "l", "--ranges", "2", "--split-at", "a"], "not allowed with"),
        (["--what"], "unrecognized arguments: --what"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lognode(arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "ms"), [("10m", 600_000), ("7d", 604_800_000), ("500ms", 500), ("1.5s", 1_500)]
)
def test_ages(text: str, ms: int) -> None:
    assert parser.age_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [("10", 10), ("4KiB", 4096), ("1GiB", 1 << 30), ("2TiB", 2 << 40), ("3GB", 3 * 10**9)],
)
def test_sizes(text: str, size: int) -> None:
    assert parser.rule_bytes(text) == size
    assert parser.rule_bytes("none") is None


def test_rules_that_are_not_given_stay_and_none_takes_them_away() -> None:
    alter = main.VERBS["log alter"].parser()
    options = alter.parse(["l", "--retention", "none", "--retention-bytes", "1KiB"])
    assert (options.retention, options.retention_bytes) == (None, 1024)
    assert options.cleanup is options.snapshot_delay is UNCHANGED
    create = main.VERBS["log create"].parser().parse(["l", "--retention", "7d"])
    assert (create.retention, create.retention_bytes, create.cleanup) == (7 * 86_400_000, None,
                                                                          "delete")  # fmt: skip
    scan = main.VERBS["scan"].parser().parse(["l", "k", "--from", "snapshot", "--to", "-1h"])
    assert (scan.start, scan.end) == ("snapshot", ("ago", 3_600_000))
    times = ["--from", "2026-11-28T16:00:00+01:00", "--to", "2026-11-28"]
    scan = main.VERBS["scan"].parser().parse(["l", *times, "--limit", "3"])
    assert (scan.start, scan.end) == (("at", 1_795_878_000_000), ("at", 1_795_824_000_000))
    assert (scan.key, scan.limit) == (None, 3)
    assert parser.timestamp(scan.start).ms == 1_795_878_000_000
    assert parser.timestamp(("ago", 1 << 60)).ms == parser.time_ms("1969-07-20") == 0


def test_options_stand_anywhere_and_an_age_is_not_a_flag() -> None:
    follow = main.VERBS["follow"].parser()
    options = follow.parse(["--format", "json", "l", "--from", "-10m", "k1", "-n", "2", "k2"])
    assert (options.keys, options.start, options.limit) == (["k1", "k2"], ("ago", 600_000), 2)
    options = follow.parse(["l", "--from", "7", "--", "-k"])
    assert (options.keys, options.start) == (["-k"], 7)


def test_every_verb_takes_the_common_flags() -> None:
    for verb in main.VERBS.values():
        known = verb.parser().format_help()
        for flag in ("--server", "--timeout", "--format", "--yes"):
            assert flag in known, verb.name


def test_the_server_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNODE_SERVER", "h:1")
    verb = main.VERBS["log list"]
    assert where(verb.parser().parse([])).server == "h:1"
    assert where(verb.parser().parse(["--server", "g:2"])).server == "g:2"


def test_a_terminal_shows_times_as_dates_and_quantities_with_units(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    row = {"id": 7, "expires_ms": 1_357_035_420_000, "retention_ms": 90 * 86_400_000}
    row |= {"retention_bytes": 10 << 30}
    columns = ("id", "expires_ms", "retention_ms", "retention_bytes", "lease_ms")
    terminal, pipe = Terminal(), io.StringIO()
    for lease_ms, told in ((5_400_000, "90m"), (1_500, "1500ms"), (0, "0s"), (None, "-")):
        terminal.truncate(0)
        Printer("table", terminal).rows([{**row, "lease_ms": lease_ms}], columns)
        head, line = terminal.getvalue().replace("\0", "").splitlines()
        assert head.split() == ["ID", "EXPIRES", "RETENTION", "RETENTION_BYTES", "LEASE"]
        assert line.split() == ["7", "2013-01-01T10:17:00.000Z", "90d", "10.0", "GiB", told]
    Printer("table", pipe).rows([{**row, "lease_ms": 0}], columns)
    assert pipe.getvalue() == "7\t1357035420000\t7776000000\t10737418240\t0\n"


def test_the_bar_is_for_terminals() -> None:
    nowhere, terminal = io.StringIO(), Terminal()
    for out in (nowhere, terminal):
        bar = progress.Progress("flights", out)
        bar.update(0.5, 1_234)
        bar.end(1.0, 2_345)
    assert nowhere.getvalue() == ""
    assert "flights [###############---------------]  50%  1,234" in terminal.getvalue()
    assert terminal.getvalue().endswith("\n")


def test_a_bar_fits_the_line_and_shows_the_last_that_it_got() -> None:
    terminal = Terminal()
    bar = progress.Progress("a" * 70, terminal)
    bar.update(0.1, 1)
    bar.update(0.2, 2)  # too soon to be drawn
    bar.leave()
    bar.leave()
    drawn = terminal.getvalue().removesuffix("\n").split("\r")[1:]
    assert [len(line) for line in drawn] == [79, 79]
    short = Terminal()
    bar = progress.Progress("rows", short)
    bar.update(None, 7)
    bar.end(None, 9_999)
    assert re.fullmatch(r"\rrows 7  \S+/s +\rrows 9,999  \S+/s +\n", short.getvalue())


def test_a_wait_tells_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LOOK_EVERY_S", 0.01)
    terminal, looks = Terminal(), 0
    monkeypatch.setattr("sys.stderr", terminal)

    async def wait() -> None:
        done = asyncio.Event()

        async def look() -> progress.Step:
            nonlocal looks
            looks += 1
            if looks == 2:
                raise errors.Unavailable("x")
            if looks == 4:
                done.set()
            return progress.Step(looks / 4, f"left:\n{4 - looks}")

        async def work() -> str:
            await done.wait()
            return "done"

        assert await progress.watched("node 3", work(), look) == "done"

        async def failing() -> None:
            raise errors.Conflict("no")

        with pytest.raises(errors.Conflict):
            await progress.watched("node 3", failing(), look)

    asyncio.run(wait())
    lines = terminal.getvalue().removesuffix("\n").split("\r")
    assert [line.rstrip() for line in lines[1:4]] == [
        f"node 3 [{'#' * 8}{'-' * 22}]  25%  0 s  left: 3", "node 3 0 s  no answer",
        f"node 3 [{'#' * 22}{'-' * 8}]  75%  0 s  left: 1",
    ]  # fmt: skip


def test_a_drain_and_a_change_of_a_range_tell_how_far_they_are() -> None:
    answers: list[list[dict[str, Any]]] = [
        [{"id": 1, "replicas": 9}, {"id": 3, "replicas": 4}], [{"id": 3, "replicas": 1}],
        [{"id": 3, "replicas": 0}], [],
    ]  # fmt: skip
    operation = {"id": 5, "kind": "move", "phase": "COPYING", "reason": "an operator"}
    ranges: list[dict[str, Any]] = [
        {"id": 1, "log": "a", "operation": None}, {"id": 2, "log": "b", "operation": 5},
    ]  # fmt: skip

    async def nodes() -> Any:
        return answers.pop(0)

    async def status() -> Any:
        return {"operations": [operation], "ranges": ranges}

    client: Any = SimpleNamespace(admin=SimpleNamespace(nodes=nodes), status=status)

    async def look() -> None:
        left = verbs_nodes._leaving(client, 3)
        steps = [await left() for _ in range(4)]
        assert steps == [
            (0.0, "replicas left: 4"), (0.75, "replicas left: 1"), (1.0, "replicas left: 0"),
            (1.0, "replicas left: 0"),
        ]  # fmt: skip
        under_way = "move is COPYING: an operator"
        none = "no operation is under way"
        for chosen, told in (
            ({"range_id": 2}, under_way), ({"log": "b"}, under_way), ({"range_id": 1}, none),
            ({"log": "a"}, none),
        ):  # fmt: skip
            step = await verbs_ranges.under_way(client, **chosen)()  # type: ignore[arg-type]
            assert step == (None, told), chosen

    asyncio.run(look())


def test_a_wait_that_the_user_ends_ends_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    told = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cleaned up")

    async def look() -> progress.Step:
        return progress.Step(None, "")

    async def end() -> None:
        task = asyncio.create_task(progress.watched("bench", work(), look))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told == ["cleaned up"]

    asyncio.run(end())


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        lognode(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for name in (*main.VERBS, "dev", "verify", "config show"):
        assert f"\n  {name} " in out


def test_config_show_names_sources(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNODE_ZONE", "z1")
    assert lognode(["config", "show", "--listen", "127.0.0.1:9", "--format", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["zone"] == {"name": "zone", "value": "z1", "source": "environment LOGNODE_ZONE"}
    assert rows["listen"]["source"] == "flag --listen"
    assert rows["http"]["source"] == "default"
