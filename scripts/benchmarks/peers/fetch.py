"""`scripts/bench fetch`: gets the systems of `scripts/bench peers`, each by its own client.

NATS and etcd of Debian come by apt, a current NATS server as a Go module, Kafka's jars by Maven
coordinates (peers/kafka/pom.xml), Python clients by pip. The class that gives keys to the records
of Kafka's own tool is compiled. Missing systems are named, the rest is
fetched.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .kafka_peer import KEYS

NATS_SERVER = "github.com/nats-io/nats-server/v2@v2.10.29"
PYTHON = ("nats-py>=2.9", "confluent-kafka>=2.6")
_POM = Path(__file__).parent / "kafka" / "pom.xml"


def main(arguments: Sequence[str]) -> int:
    """Fetch everything that is missing. Return 1 when something could not be fetched."""
    parser = argparse.ArgumentParser(prog="scripts/bench fetch", allow_abbrev=False)
    parser.add_argument("--cache", type=Path, default=Path("peers"), help="default ./peers")
    cache: Path = parser.parse_args(arguments).cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    steps: dict[str, Callable[[Path], None]] = {
        "nats-server and etcd of Debian": _debian,
        NATS_SERVER: _nats,
        "Kafka": _kafka,
        "keys for Kafka's own tool": _kafka_keys,
        "Python clients": lambda _: _run(sys.executable, "-m", "pip", "install", "-q", *PYTHON),
    }
    missing = 0
    for name, step in steps.items():
        try:
            step(cache)
            print(f"{name}: there", flush=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{name}: not to be had: {error}", flush=True)
            missing += 1
    return int(missing > 0)


def _debian(_: Path) -> None:
    packages = {"nats-server": "nats-server", "etcd": "etcd-server"}
    wanted = [package for program, package in packages.items() if shutil.which(program) is None]
    if wanted:
        _run("apt-get", "install", "-y", "-q", *wanted)


def _nats(cache: Path) -> None:
    if not (cache / "nats" / "nats-server").exists():
        _run("go", "install", NATS_SERVER, GOBIN=str(cache / "nats"))


def _kafka(cache: Path) -> None:
    libraries = cache / "kafka"
    if (libraries / f"kafka_2.13-{_kafka_version()}.jar").exists():
        return
    partial = cache / "kafka.partial"
    shutil.rmtree(partial, ignore_errors=True)
    _run("mvn", "-B", "-q", "-f", str(_POM), "dependency:copy-dependencies",
         "-DincludeScope=runtime", f"-DoutputDirectory={partial}")  # fmt: skip
    shutil.rmtree(libraries, ignore_errors=True)  # another version
    partial.rename(libraries)


def _kafka_version() -> str:
    found = re.search(r"<artifactId>kafka_2.13</artifactId>\s*<version>(.*?)<", _POM.read_text())
    assert found is not None
    return found[1]


def _kafka_keys(cache: Path) -> None:
    source, made = _POM.parent / "KeyedRecords.java", cache / KEYS
    if made.exists() and made.stat().st_mtime >= source.stat().st_mtime:
        return
    _run("javac", "-d", str(made.parent), "-cp", f"{cache / 'kafka'}/*", str(source))


def _run(*command: str, **environment: str) -> None:
    subprocess.run(command, check=True, env={**os.environ, **environment}, stdout=sys.stderr)
