"""What an error of obstore means.

obstore tells the status and the code of an answer only in the text of its errors. A text that this
module does not understand counts as a fault that passes: the request is repeated until the store's
patience ends, and the user then sees the text.
"""

import re
from html import unescape
from typing import Final, NamedTuple

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,400})</Message>")
_FROM_MACHINE: Final = ("/latest/api/token", "/latest/meta-data/", "169.254.170.2")
"""Parts of the addresses where a machine gives credentials to its programs."""
_CAUSES: Final = (
    re.compile(r'message: "([^"]{1,200})"'),
    re.compile(r'^\s*"([^"]{1,200})",$', re.MULTILINE),
)
"""Where the dump of an error names its cause, the most exact cause first."""
_CHARS_MAX: Final = 300
_STATUSES_THAT_PASS: Final = {0, 408, 409, 425, 429, 500, 502, 503, 504}
_CODES_THAT_PASS: Final = {"RequestTimeout", "SlowDown", "BadDigest", "XAmzContentSHA256Mismatch"}
"""The last two say that an upload was damaged on its way."""
KEYS_ENDED: Final = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
"""Codes that say that temporary keys are no longer valid."""


class Refusal(NamedTuple):
    """What a failed request showed. `status` 0: no answer came, or the answer was damaged."""

    kind: str
    """The name of obstore's class."""
    status: int
    code: str
    text: str
    """One line for people."""
    without_credentials: bool = False
    """Whether obstore asked the machine for credentials, and got none."""

    @property
    def passes(self) -> bool:
        """Whether the same request may succeed later."""
        if self.without_credentials or self.other_region:
            return False
        return self.status in _STATUSES_THAT_PASS or self.code in _CODES_THAT_PASS

    @property
    def other_region(self) -> bool:
        """Whether the bucket is in another region."""
        return self.status in (301, 307) or "incorrectly configured region" in self.text

    @property
    def exists(self) -> bool:
        """Whether a conditional put met an object. obstore also says so of 409, with which S3
        refuses a put beside another put of the same name, whose outcome is open."""
        return self.kind == "AlreadyExistsError" and self.status != 409

    @property
    def unsupported(self) -> bool:
        """Whether the store does not know a part of the request."""
        return self.status == 501 or self.code == "NotImplemented"


def refusal(error: Exception) -> Refusal:
    """Return what an error of obstore says."""
    whole = str(error)
    line, _, rest = whole.partition("\n\nDebug source:")
    status, code = _STATUS.search(line), _CODE.search(line)
    message = _MESSAGE.search(line)
    if code is not None:
        said = unescape(message[1]).rstrip(".") if message is not None else ""
        text = f"{code[1]} ({said})" if said else code[1]
    else:
        text = line.rpartition(" - ")[2] or line
        causes = (cause.search(rest) for cause in _CAUSES if status is None)
        cause = next(filter(None, causes), None)
        if cause is not None:
            text += f": {cause[1]}"
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return Refusal(
        type(error).__name__,
        0 if status is None else int(status[1]),
        "" if code is None else code[1],
        plain[:_CHARS_MAX].rstrip(": "),
        any(part in line for part in _FROM_MACHINE),
    )
