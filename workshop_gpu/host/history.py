"""The last half hour: memory used on each GPU, the queue, pictures a minute.

One point each ten seconds in a ring of fixed length, kept by the server, so that a client that
opens its eyes now sees what was before. Pure: the time is passed in, in seconds since 1970.
"""

from collections import deque

import msgspec

from workshop_gpu.conductor.effects import DeviceView, Snapshot
from workshop_gpu.conductor.states import JobState

EVERY_S = 10.0
KEPT_S = 1800.0
_RATE_S = 60.0
"""Pictures a minute are counted over so long a time."""
_NOT_USED = ("margin", "reservation", "kept_free")


class Point(msgspec.Struct, frozen=True):
    """One moment. `used_bytes` are by device: what is really held there, reserved room aside;
    `reserved_bytes` is that room, where there is any."""

    at: float
    waiting: int
    running: int
    images_per_minute: float
    used_bytes: dict[str, int]
    reserved_bytes: dict[str, int]


class History:
    """Points of the last half hour, oldest first."""

    def __init__(self, every_s: float = EVERY_S, kept_s: float = KEPT_S) -> None:
        self.every_s = every_s
        self._points: deque[Point] = deque(maxlen=max(1, round(kept_s / every_s)))
        self._kept_s = kept_s
        self._made: deque[tuple[float, int]] = deque()

    def made(self, images: int, now: float) -> None:
        """So many pictures were finished."""
        self._made.append((now, images))
        self._forget(now)

    def due(self, now: float) -> bool:
        """Whether it is time for another point; also after a clock that was set back."""
        if not self._points:
            return True
        passed_s = now - self._points[-1].at
        return passed_s >= self.every_s or passed_s < 0.0

    def add(self, snapshot: Snapshot, now: float) -> None:
        """Notes a point."""
        self._forget(now)
        states = [job.state for job in snapshot.jobs]
        per_minute = sum(images for _, images in self._made) * 60.0 / _RATE_S
        self._points.append(
            Point(
                at=now,
                waiting=states.count(JobState.QUEUED),
                running=states.count(JobState.RUNNING),
                images_per_minute=per_minute,
                used_bytes={view.device: _used_bytes(view) for view in snapshot.devices},
                reserved_bytes=_reserved_bytes(snapshot),
            )
        )

    def points(self, now: float, after: float = 0.0) -> list[Point]:
        """Those of the last half hour, and later than `after`."""
        oldest = max(now - self._kept_s, after)
        return [point for point in self._points if point.at > oldest]

    def _forget(self, now: float) -> None:
        while self._made and not now - _RATE_S < self._made[0][0] <= now:
            self._made.popleft()


def _used_bytes(view: DeviceView) -> int:
    return sum(holder.bytes for holder in view.holders if holder.kind not in _NOT_USED)


def _reserved_bytes(snapshot: Snapshot) -> dict[str, int]:
    reserved = {
        view.device: sum(each.bytes for each in view.holders if each.kind == "reservation")
        for view in snapshot.devices
    }
    return {device: size_bytes for device, size_bytes in reserved.items() if size_bytes}
