"""Reading ahead: what is fetched when, and what is left behind."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

import lognode.client
from lognode.client.ahead import ahead
from lognode.client.entry_columns import EntryColumns, columns_of
from lognode.client.protocol.chunks import Chunk
from lognode.client.protocol.errors import RemoteProtocolError, Unsupported


class Source:
    """Items 1 to `count`, then an error if one is given; it notes what was asked of it."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.begun = self.closed = 0
        self._count = count
        self._error = error

    async def items(self) -> AsyncGenerator[int, None]:
        try:
            for at in range(1, self._count + 1):
                self.begun = at
                await asyncio.sleep(0)
                yield at
            if self._error is not None:
                raise self._error
        finally:
            self.closed += 1


def test_the_next_item_is_asked_for_before_the_caller_has_the_last() -> None:
    async def main() -> None:
        source = Source(4)
        found = []
        async for item in ahead(source.items()):
            found.append((item, source.begun))  # the caller does not wait before this
        assert found == [(1, 2), (2, 3), (3, 4), (4, 4)]
        assert source.closed == 1

    asyncio.run(main())


def test_an_error_comes_after_the_items_before_it() -> None:
    async def main() -> None:
        found, source = [], Source(2, ValueError("broken"))

        async def read() -> None:
            async for item in ahead(source.items()):
                found.append(item)

        with pytest.raises(ValueError, match="broken"):
            await read()
        assert (found, source.closed) == ([1, 2], 1)

    asyncio.run(main())


def test_a_reader_that_leaves_early_leaves_no_task_and_no_open_source() -> None:
    async def main() -> None:
        source = Source(9)
        async with aclosing(ahead(source.items())) as items:
            assert await anext(items) == 1
        assert source.closed == 1
        assert asyncio.all_tasks() == {asyncio.current_task()}
        early = ahead(source.items())
        await early.aclose()  # before the first item: nothing was begun
        assert source.closed == 1

    asyncio.run(main())


def test_columns_need_no_pyarrow_until_they_are_asked_for_as_arrow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "lognode.client.arrow_columns", raising=False)
    monkeypatch.delattr(lognode.client, "arrow_columns", raising=False)
    columns = EntryColumns(Chunk.of([b"k"], [1], [2], [b"v"], {}, []))
    assert columns.values == [b"v"]
    with pytest.raises(Unsupported, match=r"Arrow batches need pyarrow.*pip install 'pyarrow>=18'"):
        columns.to_arrow()


def test_columns_of_a_page_that_do_not_fit_together_are_refused() -> None:
    page = {"keys": b"k", "seqs": [1, 2], "timestamps": [1, 2], "values": [b"v", None],
            "headers": None, "snapshots": None}  # fmt: skip
    assert len(columns_of(page) or ()) == 2
    assert columns_of({**page, "seqs": [], "timestamps": [], "values": []}) is None
    broken: list[dict[str, object]] = [
        {"seqs": [1]}, {"values": []}, {"keys": [b"k"]}, {"headers": {2: {}}}, {"snapshots": [2]},
    ]  # fmt: skip
    for change in broken:
        with pytest.raises(RemoteProtocolError):
            columns_of({**page, **change})
