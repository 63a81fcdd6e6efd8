"""Where tests are kept: `store/<test>/<time>/`, one folder a run.

`test.json` (all options, seed, commit), `history.jsonl`, `results.json`, `report.html`, the log of
each node, and of a run that is not valid the data directories and the credentials of the nodes.
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
    """A folder for a run that begins now."""
    began = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")[:-3]
    folder = store / test / began
    folder.mkdir(parents=True)
    return folder


def write(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    """One of the JSON files, whole or not at all."""
    partial = folder / f"{name}.partial"
    partial.write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    partial.replace(folder / name)


def read(folder: Path, name: str) -> dict[str, Any]:
    """One of the JSON files. Raises InvalidArgument when it is none, or not there."""
    try:
        content: dict[str, Any] = json.loads((folder / name).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"{folder} is no folder of a test: {error}; give STORE/TEST/TIME", what="folder"
        ) from None
    return content


def drop_data(folder: Path) -> None:
    """The nodes' data directories and the credentials go; the nodes' logs stay."""
    shutil.rmtree(folder / CLUSTER_FOLDER / FOLDER, ignore_errors=True)
    for data in (folder / CLUSTER_FOLDER).glob("node*"):
        if data.is_dir():
            shutil.rmtree(data)
