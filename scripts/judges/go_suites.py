"""Test suites in Go: copied from the module proxy, built, run, and judged by their logs."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from .brokers import must, run
from .suites import Outcome

_ROW: Final = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)


def copied(work: Path, module: str, version: str, source: Path | None) -> Path | None:
    """Copy a module to change its tests; return the copy, None if there has been one before."""
    copy = work / module.rpartition("/")[2]
    if copy.exists():
        return None
    if source is None:
        home = work / "go"
        told = f"{module}@v{version}"
        must(["go", "mod", "download", "-modcacherw", told], work, GOPATH=str(home))
        escaped = re.sub("[A-Z]", lambda upper: "!" + upper[0].lower(), told)
        source = home / "pkg" / "mod" / escaped
    shutil.copytree(source, copy)
    return copy


def changed(path: Path, *changes: tuple[str, str]) -> None:
    """Replace all of some texts of a test. Raises SystemExit for a text that is not there."""
    text = path.read_text()
    for old, new in changes:
        if old not in text:
            raise SystemExit(f"{path} has no text {old!r}: give the version that is tested")
        text = text.replace(old, new)
    path.write_text(text)


def judged(
    work: Path, folder: Path, left_out: Mapping[str, str], *, limit_s: int,
    flags: Sequence[str] = (), only: Sequence[str] = (), **environment: str,
) -> Outcome:  # fmt: skip
    """Build the tests of a folder with the flags, run them, and return their outcome.

    `only`: the tests to run, if not all. A name in `left_out` is that of a test, or of a part of a
    test behind a slash. The outcome counts tests, and names each failed part.
    """
    binary, log = work / f"{folder.name}.test", work / f"{folder.name}.log"
    go = {"GOPATH": str(work / "go"), "GOFLAGS": "-mod=mod"}
    must(["go", "test", "-c", *flags, "-o", binary, "."], folder, **go)
    skipped = "|".join(
        "/".join(f"^{re.escape(part)}$" for part in name.split("/")) for name in left_out
    )
    done = run(
        [binary, "-test.v", "-test.run", f"^({'|'.join(only)})$" if only else ".",
         "-test.skip", skipped or "^$", "-test.timeout", f"{limit_s}s"],
        folder, log=log, limit_s=limit_s + 30, **environment,
    )  # fmt: skip
    outcome = Outcome([], {}, [])
    for told, name in _ROW.findall(log.read_text(errors="replace")):
        if told == "FAIL":
            outcome.failed[name] = f"see {log}"
        elif "/" not in name:
            (outcome.passed if told == "PASS" else outcome.skipped).append(name)
    if done.returncode and not outcome.failed:
        outcome.failed[folder.name] = f"exit code {done.returncode}, see {log}"
    return outcome
