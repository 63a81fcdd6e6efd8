"""The interface of stores, and what they check together."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ..protocol.errors import CorruptData, InvalidArgument, LognodeError

NAME_CHARS_MAX: Final = 512
_NAME: Final = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]*(/[0-9A-Za-z_-][0-9A-Za-z._-]*)*")


class Listed(NamedTuple):
    """An object in a listing. `size`: bytes."""

    name: str
    size: int


class ObjectStore(ABC):
    """Objects by name. The docstring of the folder has the contract.

    A name has parts of letters, digits, `.`, `_` and `-`, with `/` between the parts. No part
    begins with `.`. All methods raise Unavailable, Unauthorized, NotFound for a store that does not
    exist, and InvalidArgument for a name that is not allowed.
    """

    place: str
    """Where the store is, for people."""
    conditional: bool = True
    """Whether the store tells two writers of one name apart; known only after a `put` without
    `replace`."""

    @abstractmethod
    def put(self, name: str, content: bytes, *, replace: bool = False) -> bool:
        """Store an object; `replace`: also in place of an object of this name.

        Return whether the object was stored. False: an object of this name exists, and keeps its
        content. Raises CorruptData if the store has other bytes than the content afterwards.
        """

    @abstractmethod
    def get(self, name: str, bytes_max: int) -> bytes | None:
        """Return the content of an object, None without an object of this name.

        Raises CorruptData for an object of more than `bytes_max` bytes.
        """

    @abstractmethod
    def get_range(self, name: str, begin: int, end: int) -> bytes | None:
        """Return the bytes [begin, end) of an object, None without an object of this name.

        Raises CorruptData for an object that ends before `end`.
        """

    @abstractmethod
    def objects(self, folder: str = "") -> Iterator[Listed]:
        """Yield the objects whose names begin with `folder` and `/`, in the order of names.

        An empty folder means all objects. Objects whose names are not allowed are left out.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove an object, if there is one."""

    def clear(self) -> int:
        """Remove what killed writers left beside the objects. Return how many files were removed;
        most stores have none."""
        return 0

    def failed(self, kind: type[LognodeError], text: str, **fields: Any) -> LognodeError:
        """Return an error of this store."""
        return kind(f"{self.place}: {text}", outcome="not_applied", store=self.place, **fields)

    def too_large(self, name: str, bytes_max: int) -> LognodeError:
        """Return the error for an object that is larger than the caller takes."""
        return self.failed(
            CorruptData, f"object {name} has more than {bytes_max} bytes. Restore the object"
        )

    def too_short(self, name: str, end: int) -> LognodeError:
        """Return the error for an object that ends before the requested range."""
        return self.failed(CorruptData, f"object {name} ends before byte {end}. Restore the object")


def check_name(name: str) -> str:
    """Return the name. Raises InvalidArgument for a name that is not allowed."""
    if is_name(name):
        return name
    raise InvalidArgument(
        f"{name[:80]!r} is not the name of an object; a name has at most {NAME_CHARS_MAX} letters, "
        "digits, `.`, `_`, `-` and `/`. Give another name",
        what="name",
    )


def is_name(name: str) -> bool:
    """Whether the name is allowed."""
    return len(name) <= NAME_CHARS_MAX and _NAME.fullmatch(name) is not None


def check_range(begin: int, end: int) -> None:
    """Raise InvalidArgument for an empty range."""
    if not 0 <= begin < end:
        raise InvalidArgument(
            f"the range is [{begin}, {end}); the begin must be 0 or more and below the end",
            what="range",
        )
