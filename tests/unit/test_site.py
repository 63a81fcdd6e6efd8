"""The documents as a site: built without a warning, with links that lead somewhere, offline.

The pages are written in GitHub's Markdown. Lists, tables and code have to come out of MkDocs as
GitHub shows them.
"""

import asyncio
import contextlib
import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import browser
import pytest

pytest.importorskip("material")
from site_hooks import for_mkdocs

ROOT = Path(__file__).resolve().parents[2]
LOADED = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "input": "src", "link": "href",
    "object": "data", "script": "src", "source": "src", "track": "src", "video": "src",
}  # fmt: skip
"""Attributes whose address a browser loads by itself."""
NOT_LOADED = {"canonical", "alternate", "prev", "next"}
"""Relations of <link> that a browser does not load."""


class Html(HTMLParser):
    """The ids, links and loaded addresses of a page, and what stands in its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.count: dict[str, int] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.count[tag] = self.count.get(tag, 0) + 1
        if name := found.get("id") or (found.get("name") if tag == "a" else None):
            self.ids.add(name)
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        related = set((found.get("rel") or "").split())
        if (address := found.get(LOADED.get(tag, ""))) and not related & NOT_LOADED:
            self.loaded.append(address)


@pytest.fixture(scope="module")
def site(module_path: Path) -> Path:
    place = module_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Html]:
    return {path: Html(path.read_text("utf-8")) for path in site.rglob("*.html")}


def test_each_document_is_a_page_of_the_site(site: Path) -> None:
    documents = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    wanted = {path.with_suffix(".html") for path in documents if path.name != "README.md"}
    wanted |= {path.with_name("index.html") for path in documents if path.name == "README.md"}
    assert not [path for path in wanted if not (site / path).exists()]
    assert (site / "changelog.html").exists()
    assert (site / "contributing.html").exists()


def test_each_link_and_anchor_of_the_site_leads_somewhere(
    site: Path, pages: dict[Path, Html]
) -> None:
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links begin at the root of the host
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = unquote(parts.fragment)
            known = pages[target].ids if target in pages else set()
            if not target.exists() or (anchor and anchor not in known and anchor != "__skip"):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken


def test_no_page_loads_anything_from_another_host(site: Path, pages: dict[Path, Html]) -> None:
    foreign = [
        f"{path.relative_to(site)}: {address}"
        for path, page in pages.items()
        for address in page.loaded
        if urlsplit(address).netloc
    ]
    for path in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import )[\"']?([^\"')]+)", path.read_text("utf-8")):
            if urlsplit(address).netloc:
                foreign.append(f"{path.relative_to(site)}: {address}")
    assert len(pages) > 20
    assert not foreign


def test_a_browser_without_network_shows_and_searches_the_site(site: Path) -> None:
    if browser.program() is None:
        assert os.environ.get("CI") != "true", "no browser is installed"
        pytest.skip("no browser is installed")
    with served(site) as address:
        asyncio.run(look(address))


async def look(address: str) -> None:
    async with browser.browse() as page:
        online = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        await page.call("Network.emulateNetworkConditions", **online)
        await page.open(f"{address}/tls.html?q=invitation")
        for _ in range(600):
            if await page.run("document.querySelectorAll('.md-search-result__item').length"):
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("the search finds nothing")
        assert "TLS" in await page.run("document.title")
        assert all(each.startswith((address, "data:", "blob:")) for each in page.fetched)
        assert page.errors == []


@contextlib.contextmanager
def served(site: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_steps_with_code_between_them_are_one_list(pages: dict[Path, Html], site: Path) -> None:
    text = (site / "tls.html").read_text("utf-8")
    part = text.split("A cluster with a small CA", 2)[-1].split("From Python, either of these")[0]
    lists = re.findall(r"<ol>.*?</ol>", part, re.S)
    assert len(lists) == 1
    assert len(re.findall(r"<li>", lists[0])) == 6
    assert "lognode node invite" in re.sub(r"<[^>]+>", "", lists[0])


def test_no_mark_of_the_source_is_left_on_a_page(site: Path) -> None:
    left = []
    for path in site.rglob("*.html"):
        body = path.read_text("utf-8").partition("<article")[2].partition("</article>")[0]
        plain = re.sub(r"<pre.*?</pre>", "", body, flags=re.S)
        codes = re.findall(r"<code>(.*?)</code>", plain, re.S)
        left += [f"{path.name}: {code}" for code in codes if "\\|" in code]
        text = re.sub(r"<code>.*?</code>", "", plain, flags=re.S)
        left += [f"{path.name}: {each}" for each in re.findall(r"<p>(?:```|\|).{,60}", text)]
        left += [f"{path.name}: {each}" for each in re.findall(r"\n(?:- |\d+\. |\|).{,60}", text)]
    assert not left


def test_lists_of_github_become_lists_of_mkdocs() -> None:
    given = "\n".join(
        [
            "Text:", "1. one", "   more", "", "   ```sh", "   run", "     deep", "   ```", "",
            "2. two", "   0600. Text", "   - within", "     text", "", "After.", "",
            "- a", "  lazy", "lazy too",
            "  - b", "", "    - not", "", "| a | b |", "|---|---|", "| `x\\|y` | z\\|w |",
        ]
    )  # fmt: skip
    assert for_mkdocs(given).splitlines() == [
        "Text:", "", "1. one", "    more", "", "    ```sh", "    run", "      deep", "    ```", "",
        "2. two 0600. Text", "    - within", "        text", "", "After.", "", "- a", "    lazy",
        "    lazy too", "    - b", "", "        - not", "", "| a | b |", "|---|---|",
        "| `x|y` | z\\|w |",
    ]  # fmt: skip


def test_code_at_the_margin_stays_as_it_is() -> None:
    given = "```python file=a.py\n- no list\n  | no | table |\n```\n\n    - indented code\n"
    assert for_mkdocs(given) == given.replace("file=a.py", 'title="a.py"')
