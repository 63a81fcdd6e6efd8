"""The report of a live test: its parts on small histories, the whole page on a made-up one."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_up_run import LOST_KEY, Shape, make

from lognode.chaos.history import Event, History
from lognode.chaos.report import faults, gaps, keyplot, rate, run, thin, timeline, unseen, write
from lognode.chaos.report.kit import LEFT, Linear, Log, Time
from lognode.client.protocol.errors import InvalidArgument

MS, SECOND = 1_000_000, 1_000_000_000


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = make(tmp_path_factory.mktemp("made_up"), Shape(seconds=30))
    return folder


def appended(process: int, value: str, began: int, ended: int, seq: int | None) -> list[Event]:
    asked = {"producer": f"p{process}", "records": [["k", value]]}
    end = Event(0, ended, process, "ok", "append", {"seqs": [seq]})
    if seq is None:
        end = Event(0, ended, process, "info", "append", error="TIMEOUT: none")
    return [Event(0, began, process, "invoke", "append", asked), end]


def polled(process: int, began: int, ended: int, entries: list[list[object]]) -> list[Event]:
    asked = {"key": "k", "after": 0, "consistency": "prefix"}
    return [
        Event(0, began, process, "invoke", "poll", asked),
        Event(0, ended, process, "ok", "poll", {"entries": entries}),
    ]


def run_of(folder: Path, *events: Event) -> run.Run:
    """The events in the order of their times, as a stored test."""
    ordered = sorted(events, key=lambda event: event.time)
    lines = [
        Event(
            i, one.time, one.process, one.type, one.f, one.value, one.error, one.node
        ).to_line()
        for i, one in enumerate(ordered)
    ]  # fmt: skip
    (folder / "history.jsonl").write_text("".join(line + "\n" for line in lines))
    (folder / "test.json").write_text('{"workload": "append", "nodes": 3}')
    return run.read(folder)


def test_unseen_rises_with_acknowledgements_and_falls_with_first_reads(tmp_path: Path) -> None:
    one = run_of(
        tmp_path,
        *appended(1, "a", 0, 10, 1),
        *appended(2, "b", 5, 20, 2),
        *appended(3, "c", 5, 60, 3),
        *polled(8, 21, 30, [[1, "a"]]),
        *polled(9, 40, 50, [[1, "a"], [3, "c"]]),
    )
    # c was read before it was acknowledged, b never.
    assert unseen.unseen(one) == [(10, 1), (20, 2), (30, 1)]


def test_a_gap_is_between_two_that_ended_ok(tmp_path: Path) -> None:
    events = [e for i in range(100) for e in appended(1, f"v{i}", i * MS, i * MS + 1, i + 1)]
    events += appended(2, "late", 100 * MS, 2 * SECOND, None)
    events += appended(1, "again", 3 * SECOND, 3 * SECOND + MS, 500)
    (gap,) = gaps.gaps(run_of(tmp_path, *events), "append")
    assert gap == gaps.Gap("append", 99 * MS + 1, 3 * SECOND + MS - 99 * MS - 1, 2)


def test_a_run_without_success_is_one_gap(tmp_path: Path) -> None:
    (gap,) = gaps.gaps(run_of(tmp_path, *appended(1, "a", 5, SECOND, None)), "append")
    assert (gap.began, gap.length) == (5, SECOND - 5)


def test_a_process_takes_the_lane_of_one_that_retired(tmp_path: Path) -> None:
    one = run_of(
        tmp_path,
        *appended(1, "a", 0, 10, None),
        *appended(2, "b", 5, 50, 1),
        *appended(3, "c", 12, 20, 2),
        *polled(4, 30, 40, []),
    )
    found = timeline.lanes(one, one.operations)
    assert [lane.processes for lane in found] == [[1, 3], [2], [4]]


def test_thin_dots_keep_every_extreme() -> None:
    points = [(10 + i % 3, 50.0 + i % 20) for i in range(5_000)] + [(11.2, 3.0), (12.0, 99.9)]
    steps = re.findall(r"M([\d.]+) ([\d.]+)v([\d.]+)", thin.dots(points))
    assert len(steps) == 5
    assert min(float(y) for _, y, _ in steps) == 3.5
    assert max(float(y) + float(v) for _, y, v in steps) == 99.5


def test_thin_lines_keep_every_extreme() -> None:
    points = [(x / 100, float(x % 7)) for x in range(1_000)]
    points[555] = (5.55, -40.0)
    points[556] = (5.56, 90.0)
    kept = thin.extremes(points)
    assert len(kept) <= 40
    assert {(5.55, -40.0), (5.56, 90.0)} <= set(kept)
    assert kept == sorted(kept)
    assert (kept[0], kept[-1]) == (points[0], points[-1])


def test_scales_stay_on_their_axes() -> None:
    time = Time(0, 10 * SECOND)
    assert (time.at(-5), time.at(11 * SECOND)) == (LEFT, time.right)
    assert [words for _, words in time.ticks()][:3] == ["0 s", "1 s", "2 s"]
    linear = Linear(37, 20, 120)
    assert [value for value, _ in linear.ticks()] == [0, 10, 20, 30, 40]
    assert (linear.at(0), linear.at(1e9)) == (120, 20)
    log = Log(2 * MS, 3 * SECOND, 20, 120)
    assert [words for _, words in log.ticks()] == ["1 ms", "10 ms", "100 ms", "1 s"]
    assert log.at(1) == 120
    assert 20 < log.at(3 * SECOND) < log.at(MS) == 120


def test_rate_counts_each_outcome(tmp_path: Path) -> None:
    one = run_of(
        tmp_path, *appended(1, "a", 0, 10, 1), *appended(2, "b", 5, SECOND, None),
        *polled(4, 30, 40, []),
    )  # fmt: skip
    shown = rate.chart(one, Time(0, one.end))
    assert "append: 1 ok, 1 info" in shown
    assert "poll: 1 ok" in shown


def test_faults_that_did_not_end_go_to_the_end(tmp_path: Path) -> None:
    begin = {"id": 1, "what": "kill <all>", "nodes": [1, 2]}
    one = run_of(
        tmp_path, Event(0, 5 * SECOND, None, "info", "kill", begin), *polled(4, 30, 9 * SECOND, [])
    )
    shown = faults.chart(one, Time(0, one.end))
    assert "kill: kill &lt;all&gt;, node 1, 2\n5.000 s until the test ended" in shown


def test_a_key_shows_what_each_node_holds(tmp_path: Path) -> None:
    def final(node: int, entries: list[list[object]]) -> list[Event]:
        at = (10 + node) * MS
        return [
            Event(0, at, 90 + node, "invoke", "final", {}, None, node),
            Event(0, at + 1, 90 + node, "ok", "final", {"keys": {"k": entries}}, None, node),
        ]

    one = run_of(
        tmp_path, *appended(1, "a", 0, 10, 4), *appended(1, "b", 20, 30, 7),
        *final(1, [[4, "a"], [7, "b"]]), *final(2, [[4, "a"]]), *final(3, [[4, "a"], [7, "x"]]),
    )  # fmt: skip
    shown = keyplot.chart(one, keyplot.collect(one, ["k"])["k"])
    assert "node 2 does not hold seq 7 (b)" in shown
    assert "node 3 holds x at seq 7, others b" in shown
    assert shown.count('class="holds"') == 4


def test_a_long_key_shows_the_seqs_in_which_nodes_differ(made_up: Path) -> None:
    one = run.read(made_up)
    (example,) = next(found for found in one.found if found.name == "lost-on-node").examples
    seq = int(re.findall(r"seq (\d+)", example["message"])[0])
    key = keyplot.collect(one, [LOST_KEY])[LOST_KEY]
    assert len(key.values) > 48
    assert f"node 2 does not hold seq {seq}" in keyplot.chart(one, key)


class Outline(HTMLParser):
    """Checks that tags close in order; keeps ids, links and addresses."""

    VOID = ("meta", "br")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(made_up: Path) -> None:
    page = write(made_up).read_text("utf-8")
    outline = Outline(page)
    assert len(outline.ids) == len(set(outline.ids))
    assert all(link[0] == "#" and link[1:] in outline.ids for link in outline.links)
    assert not re.search(r"url\(|@import|https?://", page)
    results = json.loads((made_up / "results.json").read_text())
    assert results["verdict"] == "invalid"
    body = page.index("<body>")
    assert body < page.index(results["why"], body) < page.index("<section")
    lost = results["checkers"]["append"]["anomalies"]["lost-write"]["examples"][0]
    assert f'id="op-{lost["operations"][0]}"' in page
    assert f"Key <code>{LOST_KEY}</code>" in page


def test_text_of_a_test_is_never_markup(made_up: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(made_up, folder)
    evil = "</script><img src=x onerror=alert(1)>\"'&"
    for name in ("history.jsonl", "test.json", "results.json"):
        text = (folder / name).read_text()
        for word in ("k3", "acknowledged", "lost-write", "UNAVAILABLE", "0123abc", "kill of"):
            text = text.replace(word, json.dumps(evil)[1:-1] + word)
        (folder / name).write_text(text)
    page = write(folder).read_text("utf-8")
    assert "<img" not in page
    assert page.count("</script>") == 1
    Outline(page)


def test_a_test_without_results_is_not_judged(made_up: Path, tmp_path: Path) -> None:
    for name in ("history.jsonl", "test.json"):
        shutil.copy(made_up / name, tmp_path)
    assert "lognode-chaos analyze" in write(tmp_path).read_text()


def test_a_test_in_which_nothing_happened_has_a_page(tmp_path: Path) -> None:
    run_of(tmp_path)
    Outline(write(tmp_path).read_text())


def test_a_folder_without_a_test_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"test\.json cannot be read.*STORE/TEST/TIME"):
        write(tmp_path)
    (tmp_path / "test.json").write_text("{}")
    with pytest.raises(InvalidArgument, match=r"history\.jsonl"):
        write(tmp_path)


def test_reading_takes_offending_operations_from_results(made_up: Path) -> None:
    one = run.read(made_up)
    lost = next(found for found in one.found if found.name == "lost-write")
    append = next(o for o in one.operations if o.index == lost.examples[0]["operations"][0])
    assert (append.f, append.asked["records"][0][0]) == ("append", LOST_KEY)
    assert one.offending()[append.index] == "lost-write"
    assert History.read(made_up / "history.jsonl").bands() == one.bands
