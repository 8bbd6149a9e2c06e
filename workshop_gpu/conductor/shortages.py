"""Where devices ran out of memory of late, although a plan had said that they would not.

For a while nothing as large is tried there on the same rung again, so that a model does not climb
up and fall down in turn.
"""

from dataclasses import dataclass, field

from workshop_gpu.conductor.planner import Step

REMEMBERED_S = 300.0
_MOST_PER_SLOT = 32


@dataclass(frozen=True, slots=True)
class _Shortage:
    step: Step
    units: int
    until_s: float


@dataclass(slots=True)
class Shortages:
    """By device and model."""

    _known: dict[tuple[str, str], list[_Shortage]] = field(default_factory=dict)

    def add(self, device: str, model: str, step: Step, units: int, now: float) -> None:
        """A job of so many units (pixels × batch; 0: the load itself) found too little."""
        known = self._known.get((device, model), [])
        fresh = [each for each in known if each.until_s > now]
        fresh.append(_Shortage(step, units, now + REMEMBERED_S))
        self._known[device, model] = fresh[-_MOST_PER_SLOT:]

    def steps(self, device: str, model: str, units: int, now: float) -> tuple[Step, ...]:
        """What is not to be tried there with so many units."""
        known = self._known.get((device, model), ())
        return tuple(each.step for each in known if each.until_s > now and each.units <= units)

    def forget(self, model: str) -> None:
        """The model changed, or the instructor wants it tried again."""
        for key in [key for key in self._known if key[1] == model]:
            del self._known[key]
