"""report/: one page that shows what a test did, what was seen, and what is wrong.

`write` makes `report.html` of a store folder from its `test.json`, `history.jsonl` and
`results.json`. The page is one file: style, SVG and a little script stand inside it, nothing is
fetched, and its own content policy forbids that. It judges nothing: what it says is wrong is what
`results.json` says.

1. `run.py` reads the folder; `entries.py` says which entries an operation wrote or read.
2. Each chart is a function of the run in a file of its own, over the kit (`kit.py`: scales, axes,
   text; `shades.py`: the faults behind a chart). Charts over time share one time axis.
3. What would not be seen is not written: `thin.py` draws many points as the pixels that they cover,
   which keeps every extreme. The size of a page depends on its charts, hardly on the history.
4. `page.py` puts them together; `style.py` has the colours (light, dark, paper) and the script.
"""

from .page import write

__all__ = ["write"]
