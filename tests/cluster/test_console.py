"""The console of real nodes in a real browser: every screen, hostile content, keyboard, tokens."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from console_page import SCREENS, Console, axe_findings, chromium, console
from http_asking import asked
from playwright.sync_api import Browser, expect

import lognode
from lognode import testing
from lognode.testing import LocalCluster

pytestmark = pytest.mark.cluster
HOSTILE = '<img src=x onerror="window.hacked=1">'
HOSTILE_LOG = "<b>log</b>"
REORDERED = "safe\u202etxt.exe"
PICTURES = os.environ.get("CONSOLE_PICTURES")
"""A folder for a picture of each screen, to look at."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def cluster(module_path: Path) -> Iterator[LocalCluster]:
    with testing.cluster(module_path, 1) as found:
        with lognode.Client(found.servers) as client:
            fill(client)
        testing.wait_healthy(found)
        yield found


def fill(client: lognode.Client) -> None:
    """Logs with plain, odd and hostile keys and values, and a group with parked keys."""
    orders = client.create_log("orders", split_at=[b"order-2", b"order-5", b"\xff"])
    orders.append_many([(f"order-{n:03}", json.dumps({"order": n}).encode()) for n in range(600)])
    orders.append_many([("order-001", b"step %d" % n) for n in range(250)])
    hostile = client.create_log(HOSTILE_LOG)
    hostile.append(HOSTILE, HOSTILE.encode(), headers={HOSTILE: HOSTILE})
    hostile.append(b"\x00\xff", bytes(range(256)))
    hostile.append(REORDERED, REORDERED.encode())
    hostile.append("large", b"A" * 1_000_000)
    hostile.append("none", None)
    jobs = client.create_log("jobs")
    for key in ("bad", HOSTILE, "worse"):
        jobs.append_many([(key, b"1"), (key, b"2")])
    with jobs.consume("billing<i>", max_deliveries=1) as consumer:
        for seen, batch in enumerate(consumer, 1):
            batch.reject(error=HOSTILE)
            if seen == 3:
                break


@pytest.fixture
def tab(browser: Browser, cluster: LocalCluster) -> Iterator[Console]:
    """A tab, which must not have complained or asked for anything outside of the node."""
    with console(browser, cluster.nodes[0].http) as found:
        yield found
        assert found.errors == []
        assert found.foreign == []
        assert found.page.evaluate("window.hacked") is None


def test_the_overview_says_the_verdict_and_sums(tab: Console) -> None:
    page = tab.open("overview")
    expect(page.locator("h2", has_text="The cluster is healthy")).to_be_visible()
    expect(page.locator("#verdict")).to_have_text("Healthy")
    expect(page.locator("dd", has_text="1 of 1 active")).to_be_visible()
    page.keyboard.press("2")
    expect(page.locator("h1")).to_have_text("Nodes")
    expect(page.locator("td", has_text="ACTIVE")).to_be_visible()


def test_the_map_shows_each_range_and_arrow_keys_move(tab: Console) -> None:
    page = tab.open("ranges", "log=orders")
    cells = page.locator(".map .cell")
    expect(cells).to_have_count(4)
    cells.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".card h2")).to_have_text(
        title_of(cells.nth(1).get_attribute("aria-label"))
    )
    expect(page.locator(".card")).to_contain_text("order-2 to order-5")
    page.locator("[name=colour]").select_option("size")
    expect(page.locator(".legend")).to_contain_text("unknown")
    page.locator("[name=view]").select_option("table")
    expect(page.locator("tbody tr")).to_have_count(4)
    page.locator("[name=view]").select_option("changes")
    expect(page.locator("caption")).to_contain_text("latest change")


def title_of(label: str | None) -> str:
    """The title of the details of the range with this label."""
    assert label is not None
    return label.split(",")[0]


def test_entries_are_found_by_prefix_by_key_and_by_pattern(tab: Console) -> None:
    page = tab.open("explorer", "log=orders&prefix=order-00")
    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page.locator("tbody tr").nth(2)).to_contain_text('{"order": 2}')
    page.get_by_role("link", name="order-001").click()
    expect(page.locator(".count")).to_have_text("251 entries")
    expect(page.locator("tbody tr")).to_have_count(100)
    expect(page.locator("tbody tr").first).to_contain_text("step 249")
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("tbody tr")).to_have_count(200)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("tbody tr")).to_have_count(251)
    expect(page.locator("tbody tr").last).to_contain_text('{"order": 1}')
    page.get_by_role("button", name='{"order": 1}').click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_have_text('{\n  "order": 1\n}')
    dialog.get_by_role("button", name="Hex").click()
    expect(dialog.locator("pre")).to_contain_text("00000000  7b 22 6f 72")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    tab.open("explorer", "log=orders&pattern=order-00*")
    expect(page.locator("tbody tr")).to_have_count(10)


def test_hostile_keys_and_values_are_shown_as_text(tab: Console) -> None:
    page = tab.open("explorer", f"log={quote(HOSTILE_LOG)}")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(5)
    expect(rows.nth(0)).to_contain_text("0x00ff")
    expect(rows.nth(1)).to_contain_text(HOSTILE)
    expect(page.locator("tbody")).to_contain_text("safe\\u{202e}txt.exe")
    expect(page.locator("tbody")).to_contain_text("tombstone")
    assert page.locator("main img, main b").count() == 0
    page.get_by_role("link", name=HOSTILE).click()
    page.locator("td .value").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Header {HOSTILE}")
    expect(dialog.locator("pre")).to_have_text(HOSTILE)
    assert page.locator("dialog[open] img").count() == 0
    page.keyboard.press("Escape")
    tab.open("explorer", f"log={quote(HOSTILE_LOG)}&key=large")
    page.locator("td .value").click()
    expect(dialog).to_contain_text("934,464 more bytes")
    dialog.get_by_role("button", name="Show more").click()
    expect(dialog).to_contain_text("868,928 more bytes")


def test_a_live_tail_shows_entries_as_they_come(tab: Console, cluster: LocalCluster) -> None:
    with lognode.Client(cluster.servers) as client:
        log = client.create_log("live", exist_ok=True)
        page = tab.open("explorer", "log=live")
        page.get_by_role("button", name="Follow live").click()
        expect(page.locator(".count")).to_contain_text("up to date")
        log.append(HOSTILE, HOSTILE.encode())
        expect(page.locator("tbody tr").first).to_contain_text(HOSTILE)
        page.get_by_role("button", name="Pause").click()
        log.append_many([(f"k{n}", b"v%d" % n) for n in range(700)])
        page.get_by_role("button", name="Go on").click()
        expect(page.locator(".count")).to_contain_text("701 entries, the newest 500 are shown")
        assert page.locator("tbody tr").count() == 500
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".count")).to_contain_text("stopped")


def test_a_live_tail_begins_where_its_reader_asks(tab: Console, cluster: LocalCluster) -> None:
    with lognode.Client(cluster.servers) as client:
        log = client.create_log("since", exist_ok=True)
        log.append("k", b"before")
        page = tab.open("explorer", "log=since")
        assert page.get_by_label("Follow since").input_value() == "now"
        page.get_by_label("Follow since").select_option(label="the beginning")
        page.get_by_role("button", name="Follow live").click()
        expect(page.locator(".count")).to_contain_text("up to date: 1 entry")
        log.append("k", b"after")
        expect(page.locator("tbody tr")).to_have_count(2)
        page.reload()
        assert page.get_by_label("Follow since").input_value() == "all"
        page = tab.open("explorer", "log=since&key=k")
        page.get_by_role("button", name="Follow live").click()
        expect(page.locator(".count")).to_contain_text("up to date: 2 entries")


def test_a_tail_goes_on_after_the_node_was_killed(browser: Browser, tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1) as cluster, lognode.Client(cluster.servers) as client:
        log = client.create_log("live")
        with console(browser, cluster.nodes[0].http) as tab:
            page = tab.open("explorer", "log=live")
            page.get_by_role("button", name="Follow live").click()
            expect(page.locator(".count")).to_contain_text("up to date")
            log.append("k", b"first")
            expect(page.locator("tbody tr")).to_have_count(1)
            cluster.nodes[0].kill()
            expect(page.locator(".count")).to_contain_text("interrupted")
            cluster.nodes[0].start()
            log.append("k", b"second")
            expect(page.locator("tbody tr")).to_have_count(2)
            expect(page.locator("tbody tr").first).to_contain_text("second")


def test_parked_keys_are_retried_and_skipped(tab: Console, cluster: LocalCluster) -> None:
    page = tab.open("groups")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("billing<i>")
    expect(row.locator("td").nth(2)).to_have_text("6")
    expect(row.locator("td").nth(7)).to_have_text("3")
    page.get_by_role("link", name="billing<i>").click()
    keys = page.locator("tbody tr")
    expect(keys).to_have_count(3)
    expect(keys.first).to_contain_text(HOSTILE)
    keys.filter(has_text="worse").get_by_role("button", name="Retry").click()
    expect(keys).to_have_count(2)
    keys.filter(has_text="bad").get_by_role("button", name="Skip").click()
    page.get_by_label("Reason").fill("wrong order")
    page.keyboard.press("Enter")
    expect(keys).to_have_count(1)
    with lognode.Client(cluster.servers) as client:
        group = client.log("jobs").group("billing<i>")
        assert [key.key for key in group.parked()] == [HOSTILE.encode()]
        assert group.lag().entries == 5
        assert [each.what for each in group.history()][-2:] == ["retried", "skipped"]


def test_one_node_tells_its_storage_settings_and_connections(
    tab: Console, cluster: LocalCluster
) -> None:
    page = tab.open("storage")
    expect(page.locator("h2", has_text="The disk has room")).to_be_visible()
    expect(page.locator("tbody")).to_contain_text("orders")
    tab.open("settings")
    listen = page.locator("tbody tr", has=page.get_by_text("listen", exact=True))
    expect(listen).to_contain_text(cluster.nodes[0].address)
    expect(listen).to_contain_text("flag")
    with lognode.Client(cluster.servers) as client:
        client.health()
        tab.open("connections")
        expect(page.locator("tbody tr").first).to_contain_text("127.0.0.1:")


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.by_hand)])
def test_axe_finds_nothing_serious(browser: Browser, cluster: LocalCluster, scheme: str) -> None:
    http = cluster.nodes[0].http
    with console(browser, http, scheme=scheme, bypass_csp=True) as tab:
        for name in SCREENS:
            query = {"explorer": "log=orders&key=order-001", "ranges": "log=orders"}.get(name, "")
            page = tab.open(name, query)
            page.locator("table, .map, .card, p.none").first.wait_for()
            assert axe_findings(page) == [], f"{name}, {scheme}"
            if PICTURES:
                page.screenshot(path=f"{PICTURES}/{name}-{scheme}.png")
        page.keyboard.press("?")
        assert axe_findings(page) == []


def test_a_narrow_window_does_not_scroll_sideways(browser: Browser, cluster: LocalCluster) -> None:
    with console(browser, cluster.nodes[0].http, width=360, height=740) as tab:
        for name in SCREENS:
            page = tab.open(name, f"log={quote(HOSTILE_LOG)}" if name == "explorer" else "")
            page.locator("table, .map, .card, p.none").first.wait_for()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
            tab_of_screen = page.locator("#nav a[aria-current]").bounding_box()
            assert tab_of_screen is not None
            left = tab_of_screen["x"]
            assert 0 <= left <= left + tab_of_screen["width"] <= 360, f"the tab of {name} is seen"
            if PICTURES:
                page.screenshot(path=f"{PICTURES}/{name}-narrow.png")
        assert tab.errors == []


def test_a_cluster_with_tokens_asks_for_the_token(browser: Browser, tmp_path: Path) -> None:
    with testing.cluster(tmp_path, 1, auth=True) as cluster:
        token = cluster.token
        assert token is not None
        with console(browser, cluster.nodes[0].http) as tab:
            page = tab.open("overview", filled=False)
            dialog = page.get_by_role("dialog")
            expect(dialog).to_contain_text("token")
            page.get_by_label("Token of this browser tab").fill("wrong")
            page.keyboard.press("Enter")
            expect(dialog).to_be_visible()
            page.get_by_label("Token of this browser tab").fill(token)
            page.keyboard.press("Enter")
            expect(page.locator("#verdict")).to_have_text("Healthy")
            expect(dialog).to_have_count(0)
            assert page.evaluate("Object.values(sessionStorage)") == [token]
            assert page.evaluate("Object.keys(localStorage).length") == 0
            assert token not in page.url
            page.get_by_role("button", name="Token: given").click()
            page.get_by_role("button", name="Forget").click()
            expect(page.locator("#verdict")).to_have_text("Token needed")
            assert page.evaluate("Object.values(sessionStorage)") == []
        # Nobody needs a right for the files, which hold nothing of the cluster.
        assert asked(cluster.nodes[0].http, "GET", "/console/api.js").status == 200
        assert asked(cluster.nodes[0].http, "GET", "/v1/status/overview").status == 401


def test_the_files_have_a_strict_policy_and_no_other_path(cluster: LocalCluster) -> None:
    http = cluster.nodes[0].http
    page = asked(http, "GET", "/")
    assert page.status == 200
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert asked(http, "HEAD", "/").status == 200
    assert b"<style" not in page.body
    assert page.body.count(b"<script") == page.body.count(b'src="/console/console.js"') == 1
    tag = page.headers["ETag"]
    again = asked(http, "GET", "/", headers={"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    assert asked(http, "POST", "/", {}).status in (405, 413)
    for path in ("/console/", "/console/none.js", "/console/../http.py",
                 "/console/%2e%2e%2fhttp.py", "/console/console.js/x"):  # fmt: skip
        assert asked(http, "GET", path).status == 404, path
    script = asked(http, "GET", "/console/console.js")
    assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert script.headers["X-Content-Type-Options"] == "nosniff"
