"""Decimal numbers of one width as keys, made by NumPy for a whole call.

A load runs beside the system that it measures, on the same cores. Formatting one number after the
other takes three times as long.
"""

from array import array
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_GROUP: Final = 4
"""Digits that are looked up together."""
_FEW: Final = 50
"""Fewer numbers are formatted one after the other: a call of NumPy takes longer."""


def drawn(numbers: bytes, below: int, width: int) -> list[bytes]:
    """Return the remainders of 64-bit numbers by `below`, each as `width` decimal digits.

    `numbers`: the packed numbers, in the byte order of this machine. `width` is at least the count
    of digits of `below - 1`.
    """
    if len(numbers) < 8 * _FEW:
        return [b"%0*d" % (width, number % below) for number in array("Q", numbers)]
    # Only a load needs NumPy, which takes 17 MB and 0.1 s to import.
    import numpy as np

    left = np.frombuffer(numbers, np.uint64) % np.uint64(below)
    groups = -(-width // _GROUP)
    text = np.full((len(left), groups), _texts()[0])
    for group in range(groups - 1, -1, -1):
        left, low = np.divmod(left, np.uint64(10**_GROUP))
        text[:, group] = _texts()[low]
        if not left.any():
            break
    digits = text.view(np.uint8)[:, groups * _GROUP - width :]
    found: list[bytes] = np.ascontiguousarray(digits).view(f"S{width}").ravel().tolist()
    return found


@cache
def _texts() -> "NDArray[np.uint32]":
    """Return the numbers of one group, four digits in one word."""
    import numpy as np

    every: Any = np.array([b"%0*d" % (_GROUP, number) for number in range(10**_GROUP)])
    words: NDArray[np.uint32] = every.view(np.uint32)
    return words
