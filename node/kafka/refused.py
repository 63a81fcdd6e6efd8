"""The error for records and partitions that the door refuses, with the code of the answer."""


class Refused(Exception):
    """A part of a request is refused. `code` goes to the client, the text to the log."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
