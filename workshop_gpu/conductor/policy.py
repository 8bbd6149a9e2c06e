"""What the instructor decides while the server runs; the shell keeps it across restarts."""

import math
from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from workshop_gpu.conductor.errors import InvalidPolicy
from workshop_gpu.conductor.ladder import is_placement, names
from workshop_gpu.conductor.names import MAX_NAME_LENGTH, name_problem
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.conductor.states import Priority

MAX_REASON_LENGTH = 500
_MAX_ENTRIES = 10_000
_MAX_WAITING = 10_000
_DAY_S = 86_400.0

V = TypeVar("V")


class Policy(msgspec.Struct, frozen=True):
    """All times in seconds.

    `patience_s`, `queue_limit`, `min_residency_s`: as in `Settings`. `paused`: why nothing new
    begins ("": the queue goes on). `withdrawn`: models that are not offered at present, with the
    reason. `pinned`, `keep_warm_s` and `placements` overrule the catalogue's for these models (-1:
    for ever; a rung's name, or "auto"); a placement counts from the model's next load on.
    `limits` are waiting jobs allowed to single participants (0: none), `priorities` the class of
    theirs instead of "normal". `notebooks` has those of them that are kernels, with the path of
    the notebook whose next kernel takes the rules over ("": there is none); nothing is decided
    by it.
    """

    patience_s: float = 20.0
    queue_limit: int = 3
    min_residency_s: float = 10.0
    paused: str = ""
    withdrawn: dict[str, str] = {}
    pinned: dict[str, bool] = {}
    keep_warm_s: dict[str, float] = {}
    placements: dict[str, str] = {}
    limits: dict[str, int] = {}
    priorities: dict[str, Priority] = {}
    notebooks: dict[str, str] = {}

    @classmethod
    def of(cls, settings: Settings) -> "Policy":
        """The policy of a server on which the instructor has changed nothing."""
        patience_s = settings.patience_s
        residency_s = min(settings.min_residency_s, patience_s)
        return cls(patience_s, settings.queue_limit, residency_s)

    @property
    def models(self) -> set[str]:
        """All models that have a rule of their own."""
        return {*self.withdrawn, *self.pinned, *self.keep_warm_s, *self.placements}

    def without(self, gone: Collection[str]) -> "Policy":
        """The policy without the rules of participants that will not come back."""

        def left(rules: Mapping[str, V]) -> dict[str, V]:
            return {each: rule for each, rule in rules.items() if each not in gone}

        limits, priorities = left(self.limits), left(self.priorities)
        notebooks = left(self.notebooks)
        return msgspec.structs.replace(
            self, limits=limits, priorities=priorities, notebooks=notebooks
        )

    def handed_over(self, participant: str, heir: str) -> "Policy":
        """The policy with a participant's rules for its heir, who keeps those of its own."""

        def moved(rules: Mapping[str, V]) -> dict[str, V]:
            if participant not in rules:
                return dict(rules)
            rest = {each: rule for each, rule in rules.items() if each != participant}
            return {**rest, heir: rest.get(heir, rules[participant])}

        return msgspec.structs.replace(
            self,
            limits=moved(self.limits),
            priorities=moved(self.priorities),
            notebooks=moved(self.notebooks),
        )

    def check(self) -> None:
        """Raises InvalidPolicy for values out of bounds and for those that contradict each
        other."""
        _check_seconds("patience_s", self.patience_s, 0.0)
        _check_seconds("min_residency_s", self.min_residency_s, 0.0)
        _check_count("queue_limit", self.queue_limit, 1)
        if self.min_residency_s > self.patience_s:
            raise InvalidPolicy(
                "min_residency_s",
                f"{self.min_residency_s:g} s is longer than patience_s ({self.patience_s:g} s): "
                "a model that has waited for the patience is loaded whatever is there; take at "
                "most the patience",
            )
        for model, keep_s in self.keep_warm_s.items():
            if keep_s != -1.0:
                _check_seconds(f"keep_warm_s of {model[:MAX_NAME_LENGTH]}", keep_s, 0.0)
        for placement in self.placements.values():
            if not is_placement(placement):
                known = ", ".join(names())
                raise InvalidPolicy(
                    "placements", f'"{placement[:MAX_NAME_LENGTH]}" is none; take one of {known}'
                )
        for participant, limit in self.limits.items():
            _check_count(f"limits of {participant[:MAX_NAME_LENGTH]}", limit, 0)
        self._check_names()
        for model in self.withdrawn:
            if self.pinned.get(model):
                problem = f"{model} cannot be pinned and withdrawn: unpin it, or offer it, first"
                raise InvalidPolicy("pinned", problem)

    def _check_names(self) -> None:
        named: dict[str, Mapping[str, object]] = {
            "withdrawn": self.withdrawn,
            "pinned": self.pinned,
            "keep_warm_s": self.keep_warm_s,
            "placements": self.placements,
            "limits": self.limits,
            "priorities": self.priorities,
            "notebooks": self.notebooks,
        }
        for field, keys in named.items():
            if len(keys) > _MAX_ENTRIES:
                raise InvalidPolicy(field, f"must have at most {_MAX_ENTRIES} entries")
            for name in keys:
                if name_problem(name):
                    raise InvalidPolicy(field, f"a name in it {name_problem(name)}; change it")
        for field, reasons in (("withdrawn", self.withdrawn.values()), ("paused", [self.paused])):
            if any(len(text) > MAX_REASON_LENGTH or not text.isprintable() for text in reasons):
                problem = f"a reason is one line of at most {MAX_REASON_LENGTH} characters"
                raise InvalidPolicy(field, problem)


def _check_seconds(field: str, value: float, least: float) -> None:
    if not (math.isfinite(value) and least <= value <= _DAY_S):
        raise InvalidPolicy(field, f"{value:g} is not between {least:g} and {_DAY_S:.0f} seconds")


def _check_count(field: str, value: int, least: int) -> None:
    if not least <= value <= _MAX_WAITING:
        raise InvalidPolicy(field, f"{value} is not between {least} and {_MAX_WAITING}")
