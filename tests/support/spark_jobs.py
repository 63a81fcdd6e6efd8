"""Jobs of Spark as somebody starts them: in this process, or in one that can be killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lognode.client.spark.jobs.main import main


def job(*arguments: object) -> int:
    """Run a job with the session that there is; its exit code."""
    return main([str(each) for each in arguments])


def started(*arguments: object, said: Path = Path(os.devnull)) -> subprocess.Popen[bytes]:
    """A job with a Spark of its own, in a process group of its own. `said`: the file that gets what
    the job says. Nobody waits for a pipe: Spark's workers are not of that group, and keep a pipe
    open for a while after it is killed."""
    with said.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "lognode.client.spark.jobs", *map(str, arguments)],
            start_new_session=True, stdout=file, stderr=file,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}, cwd="/",
        )  # fmt: skip


def killed_when(running: subprocess.Popen[bytes], when: Callable[[], bool], limit_s: float) -> bool:
    """kill -9 to it and its Java once that is so; False when it ended before."""
    deadline = time.monotonic() + limit_s
    while running.poll() is None and time.monotonic() < deadline:
        if when():
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            return True
        time.sleep(0.005)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    return False


def attempts(place: Path) -> list[Path]:
    """Directories of exports that have begun to write."""
    return sorted((place / "data").glob("*")) if (place / "data").exists() else []
