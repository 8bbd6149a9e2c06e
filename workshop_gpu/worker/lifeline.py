"""The worker dies with the server: what only Linux can promise, in one file.

The socket's end already tells a worker that its server is gone, but only once Python runs again.
The kernel's signal also reaches a worker that is deep inside a long kernel launch or a file read,
so that no orphan keeps VRAM. Elsewhere the socket alone must do.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> bool:
    """Ask the kernel to kill this process when the thread that started it ends.

    Returns whether the kernel will. A parent that died before this call is noticed by the socket;
    where there is none, `parent` is its process id, and this one ends if it has another by now.

    A server that was started with `nohup` ignores the hang-up, and so would this process and all
    that it starts: what stands still when nobody looks after it any more would do so for ever.
    """
    if sys.platform.startswith("linux"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    asked = _ask_the_kernel()
    if parent is not None and os.getppid() != parent:
        os._exit(1)
    return asked


def _ask_the_kernel() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
