"""Seconds a denoising step takes, as measured: by a name, jobs drawn together, and pixels."""

from collections.abc import Mapping
from typing import NamedTuple

_SIZES_KEPT = 256
_NAMES_KEPT = 1024


class Pace(NamedTuple):
    """Seconds of a step, and those that a picture takes besides: encoding, decoding, weights that
    come for a while, the file. Where only whole jobs were measured the steps have all of it."""

    step_s: float
    once_s: float = 0.0

    def run_s(self, steps: int, images: int) -> float:
        """Of so many steps in all, for so many pictures one after the other."""
        return self.step_s * steps + self.once_s * images


class StepTimes:
    """What was measured under each name."""

    def __init__(self, kept: Mapping[str, Mapping[int, Mapping[int, float]]]) -> None:
        self._steps_s = {
            name: {batch: dict(sizes) for batch, sizes in batches.items()}
            for name, batches in kept.items()
        }

    def learned(self) -> dict[str, dict[int, dict[int, float]]]:
        """All of it, to be kept."""
        return {
            name: {batch: dict(sizes) for batch, sizes in batches.items()}
            for name, batches in self._steps_s.items()
        }

    def step_s(self, name: str, pixels: int, batch: int) -> float | None:
        """None while so many jobs never ran together; scaled from the nearest size."""
        known = self._steps_s.get(name, {}).get(batch)
        if not known:
            return None
        if pixels in known:
            return known[pixels]
        nearest = min(known, key=lambda size: (abs(size - pixels), size))
        return known[nearest] * pixels / nearest

    def least(
        self, ending: str, pixels: int, batch: int, beginning: str = ""
    ) -> tuple[float, str] | None:
        """As `step_s`, the least under all names with this ending and beginning, and which."""
        found = (
            (self.step_s(name, pixels, batch), name)
            for name in self._steps_s
            if name.endswith(ending) and name.startswith(beginning)
        )
        known = ((step_s, name) for step_s, name in found if step_s is not None)
        return min(known, default=None)

    def measured(self, ending: str, pixels: int, batch: int) -> dict[str, float]:
        """By the names with this ending, without it, what this very size took."""
        found: dict[str, float] = {}
        for name, batches in self._steps_s.items():
            step_s = batches.get(batch, {}).get(pixels)
            if step_s is not None and name.endswith(ending):
                found[name.removesuffix(ending)] = step_s
        return found

    def learn(self, name: str, pixels: int, batch: int, step_s: float) -> None:
        known = self._steps_s.setdefault(name, {}).setdefault(batch, {})
        known[pixels] = smoothed(known.get(pixels), step_s)
        if len(known) > _SIZES_KEPT:
            del known[next(iter(known))]
        if len(self._steps_s) > _NAMES_KEPT:
            del self._steps_s[next(iter(self._steps_s))]


def smoothed(before: float | None, measured: float) -> float:
    """Half old, half new: follows a change within a few runs, and is not thrown by one."""
    return measured if before is None else (before + measured) / 2
