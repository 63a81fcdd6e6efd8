"""A program with kafkajs: topics, an idempotent producer, two members of a group, offsets."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .brokers import must, run
from .suites import Outcome, Suite

VERSION: Final = "2.2.4"
_PROGRAM: Final = Path(__file__).with_name("kafkajs_program.js")


def _prepare(work: Path, _: Path | None) -> None:
    if not (work / "node_modules").exists():
        must(["npm", "install", "--no-audit", "--no-fund", f"kafkajs@{VERSION}"], work)


def _run(work: Path, addresses: str, _: Mapping[str, str]) -> Outcome:
    program = work / _PROGRAM.name
    shutil.copy(_PROGRAM, program)
    done = run(["node", program, addresses], work, limit_s=120)
    passed = [line[3:] for line in done.stdout.splitlines() if line.startswith("ok ")]
    failed = {} if not done.returncode else {"program": done.stderr[-1_000:]}
    return Outcome(passed, failed, [])


SUITE: Final = Suite(VERSION, _prepare, _run, {})
