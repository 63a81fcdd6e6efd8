"""report/: one page that shows what a test did, its observations, and its errors.

`write` makes `report.html` of a store folder from its `test.json`, `history.jsonl` and
`results.json`. The page is one file, with style, SVG and a little script inside. It fetches
nothing, and its own content policy forbids that. The page judges nothing: the errors are those of
`results.json`.

1. `run.py` reads the folder; `entries.py` says which entries an operation wrote or read.
2. Each chart is a function of the run in a file of its own. A chart uses the kit (`kit.py`: scales,
axes, text; `words.py`: labels; `shades.py`: the faults behind a chart). Charts over time share one
time axis. The charts are `timeline.py`, `latency.py`, `rate.py`, `gaps.py` (availability),
`faults.py`, `unseen.py` (entries that no reader has seen yet), `offending.py` (findings) and
`keyplot.py` (one key).
3. Invisible points are left out: `thin.py` draws many points as the pixels that they cover, which
keeps every extreme. The size of a page depends on its charts, hardly on the history.
4. `page.py` combines the charts; `style.py` has the colours (light, dark, paper) and the script.
`serve.py` shows the tests of a store in a browser.
"""

from .page import write

__all__ = ["write"]
