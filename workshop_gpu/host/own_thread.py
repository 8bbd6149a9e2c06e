"""Calls that may never return (the driver's, a network's) run in threads that nobody waits for.

The threads of asyncio and anyio are waited for when the server ends: one that is stuck in the
driver would hold up the end for ever.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio

T = TypeVar("T")


async def in_own_thread(
    name: str, call: Callable[[], T], stop: Callable[[], None], grace_s: float = 0.0
) -> T:
    """What `call` returns or raises. When this is cancelled, `stop` asks the thread to end; it gets
    `grace_s` for that, then it is left to itself, and nobody hears what it comes to."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def returned(value: T) -> None:
        if not outcome.done():
            outcome.set_result(value)

    def raised(fault: BaseException) -> None:
        if not outcome.done():
            outcome.set_exception(fault)

    def run() -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has ended meanwhile
            try:
                value = call()
            except BaseException as fault:
                loop.call_soon_threadsafe(raised, fault)
            else:
                loop.call_soon_threadsafe(returned, value)

    threading.Thread(target=run, name=name, daemon=True).start()
    try:
        await asyncio.wait({outcome})  # which, unlike `await outcome`, is cancelled without it
    except BaseException:
        stop()
        with anyio.move_on_after(grace_s, shield=True):
            await asyncio.wait({outcome})
        if not outcome.cancel():
            outcome.exception()  # looked at, so that it is not reported as overlooked
        raise
    return outcome.result()
