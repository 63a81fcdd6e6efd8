"""Where tests are kept: `store/<test>/<time>/`, one folder a run.

A folder has `test.json` (all options, seed, commit), `history.jsonl`, `results.json`, `report.html`
and the log of each node. After a run that is not valid, it also has the data directories and the
credentials of the nodes.
"""

import datetime
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..client.protocol.errors import InvalidArgument
from .credentials import FOLDER

TEST: Final = "test.json"
HISTORY: Final = "history.jsonl"
RESULTS: Final = "results.json"
ALL: Final = "test-all.json"
CLUSTER_FOLDER: Final = "nodes"
"""Logs, dial maps and data directories of the nodes."""


def new_folder(store: Path, test: str) -> Path:
    """Make a folder for a run that begins now."""
    began = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    folder = store / test / began
    folder.mkdir(parents=True)
    return folder


def write(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write one of the JSON files atomically."""
    partial = folder / f"{name}.partial"
    partial.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    partial.replace(folder / name)


def read(folder: Path, name: str) -> dict[str, Any]:
    """Read one of the JSON files. Raises InvalidArgument when it is missing or malformed."""
    try:
        content: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"{folder} is not the folder of a test: {error}; give STORE/TEST/TIME", what="folder"
        ) from None
    return content


def drop_data(folder: Path) -> None:
    """Delete the nodes' data directories and the credentials; keep the nodes' logs."""
    shutil.rmtree(folder / CLUSTER_FOLDER / FOLDER, ignore_errors=True)
    for data in (folder / CLUSTER_FOLDER).glob("node*"):
        if data.is_dir():
            shutil.rmtree(data)
