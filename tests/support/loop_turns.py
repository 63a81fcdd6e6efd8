"""How long the turns of the event loop that runs a test are."""

import asyncio
import time


class Turns:
    """Notes how much processor time passes at most between two turns of the loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - before)
            before = time.thread_time()

    def stop(self) -> float:
        self._task.cancel()
        return self.longest_s
