"""Log what a node waits for: at once, when the reason changes, and now and then while it stays."""

import asyncio
import logging
from typing import Final

_AGAIN_S: Final = 10.0


class Waits:
    """Logs one wait of a node. A short wait is not worth a line: the first line comes when the
    wait has taken `quiet_s` seconds."""

    def __init__(self, log: logging.Logger, message: str, *, quiet_s: float = 0.0) -> None:
        self._log = log
        self._message = message
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self._quiet_until = self._began + quiet_s
        self._told: str | None = None
        self._again_at = 0.0

    def tell(self, reason: str) -> None:
        """Log the wait and its reason, unless the log has the same line already."""
        now = self._now()
        if now < self._quiet_until or (reason == self._told and now < self._again_at):
            return
        self._told, self._again_at = reason, now + _AGAIN_S
        fields = {"reason": reason, "seconds": self._seconds()}
        self._log.info(self._message, extra={"fields": fields})

    def end(self, message: str) -> None:
        """Log the end of a wait that the log has told."""
        if self._told is not None:
            self._log.info(message, extra={"fields": {"seconds": self._seconds()}})

    def _seconds(self) -> float:
        return round(self._now() - self._began, 1)
