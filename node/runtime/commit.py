"""Find the commit of this program, for `lognode --version` and the metrics."""

import functools
import json
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

FILE: Final = "commit.txt"
"""The file that `setup.py` puts beside this module in a wheel and in a source distribution."""
_SHOWN_CHARS: Final = 12
_GIT_S: Final = 5.0


@functools.cache
def commit() -> str:
    """Return the first digits of the commit, "" if unknown.

    The commit is known in a checkout, with `+` where files were changed, in a wheel or source
    distribution that was built in a checkout, and where pip installed from a repository.
    """
    here = Path(__file__).resolve()
    return of_checkout(here.parents[2]) or of_file(here.parent) or _installed()


def of_file(folder: Path) -> str:
    """Return the commit that the build wrote into the folder, "" without the file."""
    try:
        return (folder / FILE).read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


def of_checkout(root: Path) -> str:
    """Return the commit of a checkout of lognode, "" where the folder is none."""
    if not (root / ".git").exists():
        return ""
    found = _git(root, "rev-parse", f"--short={_SHOWN_CHARS}", "HEAD")
    if not found:
        return ""
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{found}+" if changed else found


def of_direct_url(text: str) -> str:
    """Return the commit of a `direct_url.json`, which pip writes, "" if the text has none."""
    try:
        commit_id = json.loads(text)["vcs_info"]["commit_id"]
    except (ValueError, KeyError, TypeError):
        return ""
    return str(commit_id)[:_SHOWN_CHARS]


def _installed() -> str:
    try:
        return of_direct_url(distribution("lognode").read_text("direct_url.json") or "")
    except PackageNotFoundError:
        return ""


def _git(root: Path, *arguments: str) -> str:
    """Return what git says, "" without git or where git refuses the folder."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(root), *arguments],
            capture_output=True, text=True, timeout=_GIT_S, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
