"""Log what aiohttp says of the HTTP port, without the tracebacks of malformed requests.

aiohttp logs each request that it cannot parse as an error, with a traceback of 3 KB. A stranger
could fill the disk with these. So malformed requests are counted and logged as closed connections
(`turned_away.py`). An error of this node is logged as before.
"""

import logging
from typing import Any

from aiohttp.http_exceptions import HttpProcessingError

from .http_guests import Closed


class HttpLog(logging.LoggerAdapter[logging.Logger]):
    """The logger for aiohttp. `on_closed` gets `http_bad` and the host of the asker for each
    malformed request; aiohttp closes its connection."""

    def __init__(self, on_closed: Closed) -> None:
        super().__init__(logging.getLogger("aiohttp.server"), {})
        self._on_closed = on_closed

    def debug(self, msg: object, *args: object, **how: Any) -> None:
        """Log the message, unless a request was malformed: aiohttp logs some of these here."""
        if not self._is_bad(args, how.get("exc_info")):
            super().debug(msg, *args, **how)

    def exception(self, msg: object, *args: object, exc_info: Any = True, **how: Any) -> None:
        """Log an error with its traceback, unless a request was malformed."""
        if not self._is_bad(args, exc_info):
            super().exception(msg, *args, exc_info=exc_info, **how)

    def _is_bad(self, args: tuple[object, ...], error: object) -> bool:
        """Return whether the error is a malformed request, and count it if so."""
        if not isinstance(error, HttpProcessingError):
            return False
        self._on_closed("http_bad", str(args[0]) if args else "?")
        return True
