"""Serve the console at `/`: a page, its styles and its scripts, which are files of this package.

The files are the same for everybody and hold nothing of the cluster, so no right is needed. The
page gets all it shows from the door, with the token that its reader gives. The policy of the page
allows no script, style or connection but those of this node, and no text that becomes markup.
"""

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

_FOLDER: Final = Path(__file__).with_name("console")
_PAGE: Final = "index.html"
_BELOW: Final = "/console/"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    # The browser asks each time whether a file is still the same: the node may be upgraded.
    "Cache-Control": "no-cache",
}


class _File(NamedTuple):
    body: bytes
    kind: str
    tag: str


class ConsoleFiles:
    """The files of the console, read once."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        for path in sorted(_FOLDER.iterdir()):
            kind = _TYPES.get(path.suffix)
            if kind is not None:
                body = path.read_bytes()
                tag = hashlib.sha256(body).hexdigest()[:32]
                self._files[path.name] = _File(body, kind, tag)

    @property
    def paths(self) -> list[web.RouteDef]:
        """The paths of the console, for aiohttp."""
        return [web.get("/", self._serve), web.get(_BELOW + "{name}", self._serve)]

    async def _serve(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info.get("name", _PAGE))
        if found is None:
            raise web.HTTPNotFound(text="the console has no such file; open / in a browser\n")
        if found.tag in (tag.value for tag in request.if_none_match or ()):
            return web.Response(status=304, headers={**HEADERS, "ETag": f'"{found.tag}"'})
        return web.Response(
            body=found.body,
            headers={**HEADERS, "Content-Type": found.kind, "ETag": f'"{found.tag}"'},
        )
