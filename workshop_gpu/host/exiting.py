"""Whether a process is on its way out: what Linux tells long before the process is gone.

A process that is killed first gives back its memory, then closes its files, and can be waited for
last of all. That it has begun to is a flag in /proc (proc_pid_stat(5); PF_EXITING in the kernel's
include/linux/sched.h). Elsewhere the closed files must do.
"""

from pathlib import Path

_FLAGS = 6
"""Where they stand behind the program's name, which may hold anything, in parentheses."""
_PF_EXITING = 0x4


def is_exiting(pid: int) -> bool:
    """False where nobody tells, and of a process that is not there any more."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return bool(int(fields[_FLAGS]) & _PF_EXITING)
    except (OSError, IndexError, ValueError):
        return False
