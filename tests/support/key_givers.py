"""Servers as AWS has them, which give keys to programs: of an instance, of a container, and for a
web identity."""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

CONTAINER_TOKEN, IDENTITY_TOKEN = "a token of the container", "a.web.identity"
ROLE = "arn:aws:iam::123456789012:role/backups"
_ENDS = "2099-01-01T00:00:00Z"
_STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{AWS_ACCESS_KEY_ID}</AccessKeyId>
<SecretAccessKey>{AWS_SECRET_ACCESS_KEY}</SecretAccessKey>
<SessionToken>{AWS_SESSION_TOKEN}</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""


def printed(keys: Mapping[str, str], expires: str | None = None) -> str:
    """Keys as a program of `credential_process` prints them."""
    told: dict[str, Any] = {
        "Version": 1, "AccessKeyId": keys["AWS_ACCESS_KEY_ID"],
        "SecretAccessKey": keys["AWS_SECRET_ACCESS_KEY"],
        "SessionToken": keys["AWS_SESSION_TOKEN"],
    }  # fmt: skip
    return json.dumps(told if expires is None else told | {"Expiration": expires})


@contextlib.contextmanager
def key_giver(
    keys: Mapping[str, str], certificate: tuple[str, str] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Run a server that gives these keys to who asks as AWS requires. Yield its address, and the
    requests that got keys."""
    given: list[str] = []

    class Handler(_Handler):
        pass

    Handler.keys, Handler.given = keys, given
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"{scheme}://127.0.0.1:{server.server_port}", given
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    keys: Mapping[str, str]
    given: list[str]

    def do_PUT(self) -> None:
        asks = self.path == "/latest/api/token" and self.headers.get(
            "X-aws-ec2-metadata-token-ttl-seconds"
        )
        self._say(200 if asks else 400, "a session" if asks else "")

    def do_GET(self) -> None:
        if self.path == "/container":
            if self.headers.get("Authorization") == CONTAINER_TOKEN:
                self._give("container")
            else:
                self._say(401, "")
            return
        if self.headers.get("X-aws-ec2-metadata-token") != "a session":
            self._say(401, "")
            return
        role = self.path.removeprefix("/latest/meta-data/iam/security-credentials").strip("/")
        if role == "":
            self._say(200, "backups")
        elif role == "backups":
            self._give("instance")
        else:
            self._say(404, "")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        asked = parse_qs(urlsplit(self.path).query) | parse_qs(body)
        action, token, role = (
            asked.get(name, [""])[0] for name in ("Action", "WebIdentityToken", "RoleArn")
        )
        if (action, token, role) != ("AssumeRoleWithWebIdentity", IDENTITY_TOKEN, ROLE):
            self._say(403, "<Error><Code>AccessDenied</Code></Error>")
            return
        self.given.append("web identity")
        self._say(200, _STS.format(**self.keys))

    def _give(self, how: str) -> None:
        self.given.append(how)
        self._say(200, json.dumps({
            "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z",
            "AccessKeyId": self.keys["AWS_ACCESS_KEY_ID"],
            "SecretAccessKey": self.keys["AWS_SECRET_ACCESS_KEY"],
            "Token": self.keys["AWS_SESSION_TOKEN"], "Expiration": _ENDS, "RoleArn": ROLE,
        }))  # fmt: skip

    def _say(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
