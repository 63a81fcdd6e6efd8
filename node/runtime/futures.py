"""How a future gets what a call in another thread returned."""

import asyncio
from typing import Any


def settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    """Give the future the result, or the error if there is one; a cancelled future stays so."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
