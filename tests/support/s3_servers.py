"""Real S3 servers on this machine for tests, and a proxy that spoils chosen requests to them.

moto comes with the extra `dev`. Tests by hand also use versitygw, whose program is on PATH or in
the environment variable `LOGNODE_VERSITYGW`: docs/testing.md says how to build the program.
"""

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, NamedTuple

import boto3
import pytest

from lognode import testing

KEYS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "no secret"}
Fault = Literal["500", "501", "503", "lost", "cut", "silent", "redirect"]


class Asked(NamedTuple):
    """A request at the proxy. `number`: from 1."""

    method: str
    path: str
    number: int
    conditional: bool


_ALL_OF_S3 = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
_CODES = {"500": b"InternalError", "501": b"NotImplemented", "503": b"SlowDown"}


@dataclass(frozen=True)
class S3Server:
    """A running server; `endpoint` has no `/` at its end."""

    endpoint: str
    kind: str

    def bucket(self, name: str) -> str:
        """Create a bucket, and return its name."""
        self.client("s3").create_bucket(Bucket=name)
        return name

    def client(self, service: str) -> Any:
        """A client of boto3, with the keys of the first user."""
        return _client(self.endpoint, service)

    def refuse_strangers(self) -> None:
        """From now on only users of moto's server may ask."""
        headers = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"{self.endpoint}/moto-api/reset-auth", b"0", headers)
        with urllib.request.urlopen(request, timeout=20):
            pass


@cache
def _client(endpoint: str, service: str) -> Any:
    return boto3.client(
        service, endpoint_url=endpoint, region_name="us-east-1",
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )  # fmt: skip


@contextlib.contextmanager
def s3_server(place: Path, kind: str = "moto") -> Iterator[S3Server]:
    """Run a server. Environment `LOGNODE_S3`: use the server of this address instead of moto's."""
    other = os.environ.get("LOGNODE_S3")
    if kind == "moto" and other:
        yield S3Server(other.rstrip("/"), "other")
        return
    log = place / f"{kind}.log"
    with log.open("wb") as out:
        command, endpoint = _versitygw(place) if kind == "versitygw" else (_MOTO, None)
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **KEYS}
        )
    try:
        if endpoint is None:
            endpoint = _address(process, log)
        else:
            testing.eventually(partial(_listens, process, endpoint, log), timeout_s=30)
        yield S3Server(endpoint, kind)
    finally:
        process.kill()
        process.wait()


_MOTO = (sys.executable, "-m", "moto.server", "-p", "0")


def _versitygw(place: Path) -> tuple[list[str], str]:
    """The command of versitygw with an empty directory, and its address."""
    program = os.environ.get("LOGNODE_VERSITYGW") or shutil.which("versitygw")
    if program is None:
        pytest.skip("no versitygw on PATH or in LOGNODE_VERSITYGW; docs/testing.md builds it")
    (place / "versitygw").mkdir()
    (port,) = testing.free_ports(1)
    keys = "--access", KEYS["AWS_ACCESS_KEY_ID"], "--secret", KEYS["AWS_SECRET_ACCESS_KEY"]
    command = [program, "--port", f"127.0.0.1:{port}", *keys, "posix", str(place / "versitygw")]
    return command, f"http://127.0.0.1:{port}"


def _listens(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    host, _, port = endpoint.rpartition("/")[2].partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=5):
        return True
    return False


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    def find() -> Any:
        assert process.poll() is None, log.read_text()
        return re.search(r"Running on (http://\S+)", log.read_text())

    found = testing.eventually(find, timeout_s=30)
    return str(found[1])


@dataclass
class Faults:
    """Which requests a proxy spoils, and how."""

    choose: Callable[[Asked], Fault | None] = lambda asked: None
    change: Callable[[bytes], bytes] = lambda body: body
    """Changes the body of a request on its way to the server."""
    same_pages: bool = False
    """Whether listings begin anew however far the client is."""
    tag: str | None = None
    """The ETag of all answers."""
    asked: list[Asked] = field(default_factory=list)
    endpoint: str = ""


@contextlib.contextmanager
def spoiling_proxy(server: S3Server) -> Iterator[Faults]:
    """Run a proxy in front of a server.

    `500`, `501` and `503` answer without asking the server. `lost` asks the server, and then
    answers 500. `cut` ends the connection in the middle of the answer. `silent` answers nothing.
    `redirect` is the answer for a bucket of another region, and `501` that for a request with an
    unknown header.
    """
    faults = Faults()
    over = threading.Event()

    class Handler(_Handler):
        pass

    Handler.server_of, Handler.faults, Handler.over = server, faults, over
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
    thread.start()
    faults.endpoint = f"http://127.0.0.1:{proxy.server_port}"
    try:
        yield faults
    finally:
        over.set()
        proxy.shutdown()
        proxy.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: S3Server
    faults: Faults
    over: threading.Event

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = Asked(
            self.command, self.path, len(self.faults.asked) + 1, "If-None-Match" in self.headers
        )
        self.faults.asked.append(asked)
        fault = self.faults.choose(asked)
        if fault == "silent":
            self.over.wait(60)
            self.close_connection = True
        elif fault in _CODES:
            self._say(int(fault), [], b"<Error><Code>%s</Code></Error>" % _CODES[fault])
        elif fault == "redirect":
            self._say(301, [], b"<Error><Code>PermanentRedirect</Code></Error>")
        else:
            self._forward(self.faults.change(body), fault)

    do_PUT = do_HEAD = do_DELETE = do_POST = do_GET

    def _forward(self, body: bytes, fault: Fault | None) -> None:
        where = self.server_of.endpoint.removeprefix("http://")
        connection = http.client.HTTPConnection(where, timeout=30)
        kept = {name: value for name, value in self.headers.items() if name != "Content-Length"}
        path = self.path
        if self.faults.same_pages:
            path = re.sub("&start-after=[^&]*", "", path)
        connection.request(self.command, path, body, kept)
        answer = connection.getresponse()
        found = answer.read()
        connection.close()
        headers = [
            (name, value) for name, value in answer.getheaders()
            if name.lower() not in ("content-length", "connection", "transfer-encoding")
        ]  # fmt: skip
        if fault == "lost":
            self._say(500, [], b"")
            return
        if self.faults.tag is not None:
            headers = [each for each in headers if each[0].lower() != "etag"]
            headers.append(("ETag", self.faults.tag))
        if self.command == "HEAD":
            headers.append(("Content-Length", answer.getheader("Content-Length") or "0"))
        self._say(answer.status, headers, found, cut=fault == "cut")

    def _say(
        self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False
    ) -> None:
        if cut and not body:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = cut

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def made_user(server: S3Server, *, allowed: bool) -> dict[str, str]:
    """Create a user of moto's server, and return the environment with the user's keys.

    Call this before `refuse_strangers`. Without `allowed` the user may do nothing.
    """
    iam = server.client("iam")
    name = "allowed" if allowed else "idle"
    iam.create_user(UserName=name)
    if allowed:
        policy = json.dumps({"Version": "2012-10-17", "Statement": [_ALL_OF_S3]})
        iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=policy)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}  # fmt: skip


def made_role(server: S3Server) -> dict[str, str]:
    """Create a role of moto's server that may do all in S3, and return the environment with keys of
    the role, which have a session token. Call this before `refuse_strangers`."""
    iam, name = server.client("iam"), "backups"
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]["Arn"]
    policy = json.dumps({"Version": "2012-10-17", "Statement": [_ALL_OF_S3]})
    iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=policy)
    found = server.client("sts").assume_role(RoleArn=arn, RoleSessionName="tests")["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
        "AWS_SESSION_TOKEN": found["SessionToken"],
    }
