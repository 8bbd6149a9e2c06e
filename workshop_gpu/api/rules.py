"""The rules for the room, between the instructor's requests and the conductor's policy.

Pure functions: each takes the policy as it is and gives the one that is asked for. Whether that
one makes sense is the conductor's to say.
"""

from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from workshop_gpu.api.schemas import PriorityName
from workshop_gpu.api.schemas_instructor import (
    ModelPolicy,
    ModelPolicyRequest,
    ParticipantPolicy,
    ParticipantRequest,
    Policy,
    PolicyRequest,
)
from workshop_gpu.conductor import policy as conductor
from workshop_gpu.conductor.states import Priority
from workshop_gpu.host.records import Participant

MOST_KERNELS = 500
"""So many kernels' rules are kept, of those that run and of those whose notebooks may be opened
again; whoever got theirs first loses them first."""

Key = TypeVar("Key")
Value = TypeVar("Value")

_NAMES: dict[Priority, PriorityName] = {
    Priority.URGENT: "urgent",
    Priority.HIGH: "high",
    Priority.NORMAL: "normal",
    Priority.LOW: "low",
    Priority.BATCH: "batch",
}


def answer(policy: conductor.Policy) -> Policy:
    """The policy as instructors see it."""
    participants = {*policy.limits, *policy.priorities}
    return Policy(
        patience_s=policy.patience_s,
        queue_limit=policy.queue_limit,
        min_residency_s=policy.min_residency_s,
        paused=policy.paused,
        models={
            model: ModelPolicy(
                policy.withdrawn.get(model),
                policy.pinned.get(model),
                policy.keep_warm_s.get(model),
                policy.placements.get(model),
            )
            for model in sorted(policy.models)
        },
        participants={
            participant: ParticipantPolicy(
                policy.limits.get(participant),
                priority_name(policy.priorities.get(participant)),
            )
            for participant in sorted(participants)
        },
    )


def name_of(priority: Priority) -> PriorityName:
    """A class of jobs as requests name it."""
    return _NAMES[priority]


def priority_name(priority: Priority | None) -> PriorityName | None:
    """As `name_of`, where there may be none."""
    return None if priority is None else name_of(priority)


def paused(policy: conductor.Policy, reason: str) -> conductor.Policy:
    """The same rules with the queue paused, or running where the reason is ""."""
    return msgspec.structs.replace(policy, paused=reason)


def with_room(
    policy: conductor.Policy, request: PolicyRequest, configured: conductor.Policy
) -> conductor.Policy:
    """The rules for the whole room changed; null takes the configured value."""
    changes = {
        name: getattr(configured, name) if value is None else value
        for name, value in sent(request).items()
    }
    return msgspec.structs.replace(policy, **changes)


def with_model(
    policy: conductor.Policy, model: str, request: ModelPolicyRequest, reason: str
) -> conductor.Policy:
    """One model's rules changed; `reason` is for one that is withdrawn."""
    withdrawn = UNSET if request.offered is UNSET else None if request.offered else reason
    return msgspec.structs.replace(
        policy,
        withdrawn=_with(policy.withdrawn, model, withdrawn),
        pinned=_with(policy.pinned, model, request.pinned),
        keep_warm_s=_with(policy.keep_warm_s, model, request.keep_warm_s),
        placements=_with(policy.placements, model, request.placement),
    )


def with_participant(
    policy: conductor.Policy, participant: Participant, request: ParticipantRequest
) -> conductor.Policy:
    """One participant's rules changed."""
    priority, who = request.priority, participant.id
    changed = msgspec.structs.replace(
        policy,
        limits=_with(policy.limits, who, request.queue_limit),
        priorities=_with(
            policy.priorities,
            who,
            Priority[priority.upper()] if isinstance(priority, str) else priority,
        ),
        notebooks=_with(policy.notebooks, who, None),
    )
    if participant.kernel is None or not (who in changed.limits or who in changed.priorities):
        return changed
    return _noted(changed, participant)


def _noted(policy: conductor.Policy, kernel: Participant) -> conductor.Policy:
    """With the notebook of a kernel that has rules, which is then the last to lose them."""
    others = _with(policy.notebooks, kernel.id, None)
    notebooks = {**others, kernel.id: kernel.notebook}
    noted = msgspec.structs.replace(policy, notebooks=notebooks)
    return noted.without(list(notebooks)[:-MOST_KERNELS])


def sent(request: msgspec.Struct) -> dict[str, str | int | float | bool | None]:
    """The fields of a request that were sent: what it changes."""
    fields = msgspec.structs.asdict(request)
    return {name: value for name, value in fields.items() if value is not UNSET}


def _with(before: dict[Key, Value], key: Key, value: Value | UnsetType | None) -> dict[Key, Value]:
    """A copy with the key set, taken out (None), or as it was (UNSET)."""
    after = dict(before)
    if value is None:
        after.pop(key, None)
    elif not isinstance(value, UnsetType):
        after[key] = value
    return after
