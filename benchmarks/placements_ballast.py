"""Another program that takes memory of the card and gives it back, for the cards' benchmark."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PROGRAM = """
import sys, torch
kept = None
for line in sys.stdin:
    kept = None
    torch.cuda.empty_cache()
    free_bytes = torch.cuda.mem_get_info()[0] - 500_000_000
    wanted_bytes = max(0, min(int(line), free_bytes))
    kept = torch.empty(wanted_bytes, dtype=torch.uint8, device="cuda")
    print(wanted_bytes, flush=True)
"""
"""Holds so many bytes as it was told last, or all that is free if that is less."""


class Ballast:
    """What holds nothing, where there is no card."""

    async def hold(self, size_bytes: int) -> int:
        """Give back what is held and take so much; returns what could be taken."""
        return 0


class _OnCard(Ballast):
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def hold(self, size_bytes: int) -> int:
        """Raises RuntimeError if the program has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"%d\n" % size_bytes)
        answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the program that takes memory of the card has ended")
        return int(answer)


@asynccontextmanager
async def ballast(*, on_card: bool) -> AsyncIterator[Ballast]:
    """The program while it runs."""
    if not on_card:
        yield Ballast()
        return
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROGRAM, stdin=pipe, stdout=pipe
    )
    try:
        yield _OnCard(process)
    finally:
        process.kill()
        await process.wait()
