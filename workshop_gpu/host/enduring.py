"""The server's tasks go on, whatever happens in one of them.

They run side by side in one group, which ends as a whole when one breaks: a fault of ours in what
only looks after old pictures would end all workers, and the server would take jobs that nobody
draws.
"""

import logging
from collections.abc import Awaitable, Callable

import anyio

_PAUSE_S = 5.0


async def endure(
    name: str, task: Callable[[], Awaitable[None]], log: logging.Logger, pause_s: float = _PAUSE_S
) -> None:
    """Runs the task until it ends by itself; one that breaks begins anew after a pause. The same
    fault is logged once."""
    fault = ""
    while True:
        try:
            await task()
            return
        except Exception as broken:
            if repr(broken) != fault:
                fault = repr(broken)
                log.exception("%s broke, and begins anew", name)
        await anyio.sleep(pause_s)
