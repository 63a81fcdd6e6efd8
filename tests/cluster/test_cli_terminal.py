"""Verbs on a terminal: the live screen of `top`, and lines that say how far a long verb is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import Terminal

import lognode
from lognode import testing
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
WHOLE_SCREENS = (b"\x1b[2J", b"\x1b[J")
"""What clears a terminal, which then is empty for a moment."""
HELP = "q: quit, o: overview, n: nodes, r: ranges, g: groups, s: sort, arrows: scroll"


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[LocalCluster]:
    with testing.cluster(module_path, 1) as found:
        with lognode.Client(found.servers) as client:
            log = client.create_log("orders")
            log.append_many([("k", b"%d" % n) for n in range(500)])
            consumer = log.consume("billing")
            next(iter(consumer)).ack()
            consumer.close()
            log.append("k", b"new")
        yield found


def test_top_draws_on_a_terminal_until_the_user_quits(cluster: LocalCluster) -> None:
    terminal = Terminal(cluster.servers, "top", "--every", "100ms")
    terminal.read_until(b"(metadata)")
    terminal.type(b"sq")
    assert terminal.end() == 0
    address = cluster.servers.removeprefix("lognode://")
    assert address.encode() in terminal.shown
    assert b"q: quit" in terminal.shown
    assert b"\x1b[?1049l" in terminal.shown[terminal.shown.index(b"(metadata)") :], "not put back"


def test_top_changes_views_with_keys_and_redraws_only_what_changed(cluster: LocalCluster) -> None:
    terminal = Terminal(cluster.servers, "top", "--every", "100ms", "--view", "nodes", term="vt100")
    drawn = terminal.see(lambda text: "NODES, by id" in text and text.endswith(HELP))
    assert "RANGES" not in terminal.screen.text, "nodes alone"
    for _ in range(3):
        clock = clock_of(terminal.screen.text)
        redrawn = terminal.see(lambda text, clock=clock: clock_of(text) != clock)
        assert not any(each in redrawn for each in WHOLE_SCREENS), redrawn
        assert len(redrawn) < len(drawn), "ten redraws a second are less than one whole screen"
    for keys, told in (
        (b"g", r"GROUPS, most lag first\n.*\norders +billing +1 "), (b"s", "oldest entry first"),
        (b"r", "RANGES, most appends first"), (b"s", "most reads first"), (b"s", "most bytes"),
        (b"n", "NODES, by id"), (b"s", "NODES, most appends"), (b"o", "NODES(.|\n)*RANGES"),
    ):  # fmt: skip
        terminal.type(keys)
        terminal.see(lambda text, told=told: re.search(told, text) is not None)
        assert terminal.screen.text.endswith(HELP)
    terminal.type(b"q")
    assert terminal.end() == 0


def test_top_scrolls_on_a_small_screen(cluster: LocalCluster) -> None:
    terminal = Terminal(cluster.servers, "top", "--view", "ranges", term="vt100", lines=8)
    terminal.see(lambda text: "... 2 more lines" in text)
    assert "(metadata)" not in terminal.screen.text
    terminal.type(b"\x1bOB" * 2)
    terminal.see(lambda text: "(metadata)" in text)
    terminal.type(b"\x1bOA" * 9)
    terminal.see(lambda text: "(metadata)" not in text)
    terminal.type(b"q")
    assert terminal.end() == 0


def clock_of(text: str) -> str:
    (found,) = re.findall(r"\d\d:\d\d:\d\d", text)
    return found


def test_top_prints_the_groups_without_a_terminal(cluster: LocalCluster, tmp_path: Path) -> None:
    for format_ in ("table", "json"):
        with (tmp_path / format_).open("wb") as out:
            terminal = Terminal(
                cluster.servers, "top", "--view", "groups", "--format", format_, stdout=out
            )
            assert terminal.end() == 0, terminal.shown
    lines = (tmp_path / "table").read_text().splitlines()
    assert lines[4] == "GROUPS, most lag first"
    assert lines[6].split()[:3] == ["orders", "billing", "1"]
    (group,) = json.loads((tmp_path / "json").read_text())["groups"]
    assert (group["log"], group["group"], group["lag"]["entries"]) == ("orders", "billing", 1)


def test_top_refuses_an_unknown_terminal(cluster: LocalCluster) -> None:
    terminal = Terminal(cluster.servers, "top", term="nonsense")
    assert terminal.end() == 2
    refusal = b"the terminal 'nonsense' (TERM) is unknown here; set TERM, or give --once"
    assert refusal in terminal.shown


def test_a_bench_shows_how_much_of_its_time_is_over(cluster: LocalCluster) -> None:
    flags = ("--seconds", "3", "--rate", "20", "--batch", "1")
    terminal = Terminal(cluster.servers, "bench", "append", "orders", *flags, columns=60)
    terminal.read_until(b"measured")
    assert terminal.end() == 0
    line = terminal.shown[: terminal.shown.index(b"\n")].split(b"\r")[1]
    assert re.fullmatch(rb"bench \[#+-+\]  \d\d%  \d s  measured ?", line), line


def test_a_scan_into_a_file_counts_its_rows_on_the_terminal(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    for verb, count in ((("scan", "orders", "k"), 501), (("keys", "orders", "--prefix", "k"), 1)):
        with (tmp_path / "rows").open("wb") as out:
            terminal = Terminal(cluster.servers, *verb, stdout=out)
            assert terminal.end() == 0
        assert len((tmp_path / "rows").read_bytes().splitlines()) == count
        assert f"\r{verb[0]} {count:,}  ".encode() in terminal.shown
    terminal = Terminal(cluster.servers, "scan", "orders", "k", "-n", "3")
    assert terminal.end() == 0
    assert b"scan 3" not in terminal.shown, "the rows themselves are on the terminal"


def test_a_wait_for_health_says_what_is_missing(cluster: LocalCluster) -> None:
    terminal = Terminal(cluster.servers, "health", "--nodes", "2", "--wait", "1s", columns=40)
    assert terminal.end() == 3
    waits = [line for line in terminal.shown.split(b"\r") if line.startswith(b"health 0 s  ")]
    assert waits
    assert max(map(len, waits)) < 40, "the line does not go on in a second line"


def test_verify_shows_how_many_bytes_it_has_read(cluster: LocalCluster) -> None:
    """The last test of the file: the node is stopped."""
    cluster.nodes[0].stop()
    terminal = Terminal("", "verify", str(cluster.nodes[0].data))
    assert terminal.end() == 0
    assert re.search(rb"\rverify, bytes \[#{30}\] 100%  [\d,]+  ", terminal.shown)
