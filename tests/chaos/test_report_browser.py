"""report.html in a real browser, from disk, with the network off."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browse, program
from made_up_run import Shape, make

from lognode.chaos.report import write

pytestmark = pytest.mark.cluster

PLACES = """(() => [...document.querySelectorAll(SELECTOR)].map(one => {
    const box = one.getBoundingClientRect(), style = getComputedStyle(one);
    return {left: box.left + scrollX, right: box.right + scrollX, top: box.top + scrollY,
        bottom: box.bottom + scrollY, shown: one.checkVisibility({checkOpacity: true,
        checkVisibilityCSS: true}) && style.fillOpacity !== "0", text: one.textContent};
}))()"""


@pytest.fixture(autouse=True)
def _browser() -> None:
    if program() is None:
        why = "no Chromium on PATH; install it (Debian: chromium)"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)


async def visible(page: Page, selector: str) -> list[dict[str, Any]]:
    """Where the elements are; each has a size and lies inside the page."""
    found: list[dict[str, Any]] = await page.run(PLACES.replace("SELECTOR", repr(selector)))
    width = await page.run("document.documentElement.scrollWidth")
    height = await page.run("document.documentElement.scrollHeight")
    assert found, f"nothing is {selector}"
    for one in found:
        assert one["shown"], f"{selector} is hidden: {one}"
        assert 0 <= one["left"] < one["right"] <= width, f"{selector}: {one}"
        assert 0 <= one["top"] < one["bottom"] <= height, f"{selector}: {one}"
    return found


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.by_hand)])
def test_verdict_faults_and_offending_operations_are_visible(tmp_path: Path, scheme: str) -> None:
    report = write(make(tmp_path / "run", Shape(seconds=30)))

    async def look() -> None:
        async with browse() as page:
            await page.look(1_280, 900, scheme=scheme)
            await page.open(report.as_uri())
            (verdict,) = await visible(page, "#verdict")
            assert verdict["text"] == "Invalid"
            assert verdict["bottom"] < 200, "the verdict comes first"
            (why,) = await visible(page, "header h1")
            assert "was acknowledged at seq" in why["text"]
            await visible(page, "#faults .fault")
            for chart in ("latency", "rate", "unseen"):
                await visible(page, f"#{chart} .shade")
            assert any("append" in one["text"] for one in await visible(page, "#offending .op"))
            await visible(page, "#keys .ring")
            await visible(page, "#timeline .ring")
            assert page.errors == []
            assert page.fetched == [report.as_uri()]

    asyncio.run(look())


def test_a_narrow_page_does_not_scroll_sideways_and_the_pointer_is_told(tmp_path: Path) -> None:
    report = write(make(tmp_path / "run", Shape(seconds=30)))

    async def look() -> None:
        async with browse() as page:
            await page.look(400, 800)
            await page.open(report.as_uri())
            assert await page.run("document.documentElement.scrollWidth") == 400
            await page.look(1_280, 900)
            bar = "document.querySelector('#timeline svg .bar')"
            await page.run(f"{bar}.scrollIntoView({{block: 'center'}})")
            at = await page.run(f"(b => [b.x + b.width/2, b.y + 2])({bar}.getBoundingClientRect())")
            await page.call("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])
            (tip,) = await visible(page, "#tip")
            assert "process" in tip["text"]
            assert page.errors == []

    asyncio.run(look())
