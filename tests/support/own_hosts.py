"""Host names and addresses of their own for real processes, as documents print them.

A namespace of the kernel has a loopback interface with the addresses of all hosts, and its own
/etc/hosts. So processes there listen on 10.0.0.1:4600 and dial db1.example, whatever else runs on
the machine.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

_BEGIN = """
mount --bind "$1" /etc/hosts
ip link set lo up
shift
for address in "$@"; do
    [ "$address" = 127.0.0.1 ] || ip address add "$address/32" dev lo
done
echo ready
exec cat
"""


class OwnHosts:
    """Runs programs where the hosts are known."""

    def __init__(self, pid: int) -> None:
        self._prefix = ["nsenter", f"--target={pid}", "--net", "--mount"]

    def begin(
        self, script: str, folder: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a script of bash in the folder. Its output goes to `output.txt` there."""
        with (folder / "output.txt").open("ab") as output:
            return subprocess.Popen(
                [*self._prefix, "bash", "-euc", f"cd {folder}\n{script}"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(environment),
            )  # fmt: skip

    def run(
        self, script: str, folder: Path, environment: Mapping[str, str], timeout_s: float = 120
    ) -> str:
        """Run a script of bash in the folder to its end; return what it prints."""
        done = subprocess.run(
            [*self._prefix, "bash", "-euo", "pipefail", "-c", f"cd {folder}\n{script}"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s,
            env=dict(environment), check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout


@contextlib.contextmanager
def own_hosts(folder: Path, hosts: Mapping[str, str]) -> Iterator[OwnHosts]:
    """Hosts by name, with their addresses. Skips the test where the machine does not allow it."""
    if any(shutil.which(program) is None for program in ("unshare", "nsenter", "ip")):
        assert os.environ.get("CI") != "true", "unshare, nsenter or ip is missing"
        pytest.skip("unshare, nsenter or ip is missing")
    file = folder / "hosts"
    lines = [f"{address} {name}" for name, address in hosts.items()]
    file.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
    holder = subprocess.Popen(
        ["unshare", "--net", "--mount", "sh", "-euc", _BEGIN, "sh", str(file),
         *sorted(set(hosts.values()))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdin
    assert holder.stdout
    assert holder.stderr
    try:
        if holder.stdout.readline() != b"ready\n":
            pytest.skip(f"no namespace of its own: {holder.stderr.read().decode().strip()}")
        yield OwnHosts(holder.pid)
    finally:
        for pipe in (holder.stdin, holder.stdout, holder.stderr):
            pipe.close()
        holder.kill()
        holder.wait()
