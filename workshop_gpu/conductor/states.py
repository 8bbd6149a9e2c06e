"""The states of slots, jobs, devices and reservations, and the priority classes of jobs."""

from enum import Enum, IntEnum


class SlotState(str, Enum):
    """One model's presence on one GPU."""

    ABSENT = "absent"
    LOADING = "loading"
    READY = "ready"
    LEAVING = "leaving"
    FAILED = "failed"


class JobState(str, Enum):
    """One request to generate, from acceptance to its end."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


class DeviceState(str, Enum):
    """A GPU as the conductor sees it: its worker starts, stands ready, or was given up."""

    STARTING = "starting"
    READY = "ready"
    LOST = "lost"


class ReservationState(str, Enum):
    """Room for somebody's own code: asked for, or theirs."""

    WAITING = "waiting"
    GRANTED = "granted"


class Priority(IntEnum):
    """Classes of jobs; a lower number goes first."""

    URGENT = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    BATCH = 4
