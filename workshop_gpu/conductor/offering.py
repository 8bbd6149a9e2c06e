"""What the instructor's policy makes of the catalogue, and of what participants ask for."""

import msgspec

from workshop_gpu.conductor.events import ModelFacts
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.settings import Settings
from workshop_gpu.conductor.states import Priority


def under(policy: Policy, facts: ModelFacts) -> ModelFacts:
    """A model of the catalogue as it is offered under the policy."""
    name, withdrawn = facts.model, facts.model in policy.withdrawn
    placement = policy.placements.get(name, facts.memory.placement)
    return msgspec.structs.replace(
        facts,
        enabled=facts.enabled and not withdrawn,
        disabled_reason=policy.withdrawn.get(name, facts.disabled_reason),
        pinned=policy.pinned.get(name, facts.pinned),
        keep_warm_s=policy.keep_warm_s.get(name, facts.keep_warm_s),
        memory=msgspec.structs.replace(facts.memory, placement=placement),
    )


def class_of(policy: Policy, participant: str, asked: Priority) -> Priority:
    """The class of a job. The participant's own replaces "normal", and nobody gets a better one
    by asking for less than normal; what is better than normal was allowed to whoever asked."""
    own = policy.priorities.get(participant, Priority.NORMAL)
    if asked is Priority.NORMAL:
        return own
    return max(asked, own) if asked > Priority.NORMAL else asked


def limit_of(policy: Policy, participant: str) -> int:
    """How many waiting jobs the participant may have."""
    return policy.limits.get(participant, policy.queue_limit)


def settings_under(policy: Policy, settings: Settings) -> Settings:
    """The settings with what the policy says."""
    return msgspec.structs.replace(
        settings,
        patience_s=policy.patience_s,
        queue_limit=policy.queue_limit,
        min_residency_s=policy.min_residency_s,
    )
