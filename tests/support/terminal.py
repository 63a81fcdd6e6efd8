"""A verb of lognode on a terminal of its own, whose size is known."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

LOGNODE = Path(sys.executable).with_name("lognode")
_CONTROL = re.compile(
    rb"\x1b\[\??([\d;]*)([A-Za-z])|\x1b[()][0AB]|\x1b[=>78M]|[\x00-\x1a\x1c-\x1f]"
)


def _environment() -> dict[str, str]:
    """The environment without the size of another terminal, which readline puts into it."""
    return {key: told for key, told in os.environ.items() if key not in ("LINES", "COLUMNS")}


class Screen:
    """What a person sees on a VT100 that got these bytes: what curses sends for TERM=vt100."""

    def __init__(self, lines: int, columns: int) -> None:
        self.rows = [[" "] * columns for _ in range(lines)]
        self._y = self._x = 0

    @property
    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.rows)

    def feed(self, data: bytes) -> bytes:
        """Take bytes; return the begin of a sequence that is not whole yet."""
        at = 0
        while at < len(data):
            found = _CONTROL.match(data, at)
            if found is None and data[at] == 0x1B:
                if len(data) - at < 12:
                    return data[at:]
                raise AssertionError(f"a sequence that this screen does not know: {data[at:]!r}")
            if found is None:
                self._put(chr(data[at]))
                at += 1
            else:
                self._move(found)
                at = found.end()
        return b""

    def _put(self, character: str) -> None:
        if self._x < len(self.rows[0]):
            self.rows[self._y][self._x] = character
        self._x += 1

    def _move(self, found: re.Match[bytes]) -> None:
        numbers = [int(each or b"0") for each in (found[1] or b"").split(b";")]
        count, last = max(1, numbers[0]), len(self.rows) - 1
        match found[2] or found[0]:
            case b"H":
                column = numbers[1] if len(numbers) > 1 else 1
                self._y, self._x = min(last, count - 1), max(1, column) - 1
            case b"A":
                self._y = max(0, self._y - count)
            case b"B":
                self._y = min(last, self._y + count)
            case b"C":
                self._x += count
            case b"D":
                self._x = max(0, self._x - count)
            case b"K":
                self._clear(self._y, *((0, self._x + 1) if numbers[0] == 1 else (self._x, None)))
            case b"J":
                self._clear(self._y, self._x, None)
                for y in range(self._y + 1, last + 1):
                    self._clear(y, 0, None)
            case b"\r":
                self._x = 0
            case b"\n":
                self._y = min(last, self._y + 1)
            case b"\b":
                self._x = max(0, self._x - 1)
            case b"m" | b"r" | b"h" | b"l" | b"\x0f" | b"\x0e" | b"\x00" | b"\x1b=" | b"\x1b>":
                pass  # attributes, modes, and the region that scrolls
            case other:
                if not other.startswith((b"\x1b(", b"\x1b)")):
                    raise AssertionError(f"a sequence that this screen does not know: {found[0]!r}")

    def _clear(self, y: int, first: int, end: int | None) -> None:
        row = self.rows[y]
        for x in range(first, len(row) if end is None else end):
            row[x] = " "


class Terminal:
    """A verb on a terminal. `stdout` is where standard output goes instead."""

    def __init__(
        self, servers: str, *arguments: str, term: str = "xterm", lines: int = 24,
        columns: int = 80, stdout: IO[bytes] | None = None,
    ) -> None:  # fmt: skip
        self._fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            [LOGNODE, *arguments], stdin=other, stdout=stdout or other, stderr=other,
            start_new_session=True,
            env={**_environment(), "TERM": term, "LOGNODE_SERVER": servers},
        )  # fmt: skip
        os.close(other)
        self.shown = b""
        self.screen = Screen(lines, columns)
        self._left = b""

    def read_until(self, part: bytes) -> None:
        while part not in self.shown:
            self._read()

    def see(self, sees: Callable[[str], bool]) -> bytes:
        """Read until the text of the screen is as wanted; return what was read. TERM is vt100."""
        before = len(self.shown)
        while not sees(self.screen.text):
            self._left = self.screen.feed(self._left + self._read())
        return self.shown[before:]

    def _read(self) -> bytes:
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # the verb has ended
            code = self.end()
            raise AssertionError(f"the verb ended with {code}, and showed {self.shown!r}") from None
        self.shown += data
        return data

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def end(self) -> int:
        """Read the rest; return the exit code."""
        with suppress(OSError):  # Linux: EIO once the other side of the terminal is closed
            while True:
                self.shown += os.read(self._fd, 65_536)
        os.close(self._fd)
        return self.process.wait()
