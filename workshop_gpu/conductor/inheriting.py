"""One participant takes another's place: a notebook's next kernel that of the last one.

It is as if the heir had asked for all of it: the jobs keep their numbers, the time that they have
waited and what is left of their patience, and count among its own. More of them may wait than one
may have; then no more are accepted until enough of them have begun. What was decided when a kernel
ended, which cancelled its waiting jobs, is not undone.
"""

import msgspec

from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.effects import AnnouncePolicy
from workshop_gpu.conductor.events import ParticipantReplaced
from workshop_gpu.conductor.records import State


def inherit(state: State, changes: Changes, event: ParticipantReplaced, now: float) -> None:
    """The order follows at once, so that nothing can begin in between: a job of a low class would
    pass others for the moment in which nobody knows its class."""
    who, heir = event.participant, event.heir
    if who == heir:
        return
    waiting = state.queue.of_participant(who)
    running = [job for job in state.running.values() if job.participant == who]
    for job in (*waiting, *running):
        before = job.request
        job.request = msgspec.structs.replace(before, participant=heir, kernel=event.kernel)
        state.touched_jobs[job.id] = None
        if job.id in state.queue:
            state.queue.give(job, before)
    state.shares.hand_over(who, heir, len(waiting) + len(running))
    _give_uses(state, who, heir)
    policy = state.policy.handed_over(who, heir)
    if policy != state.policy:
        state.policy = policy
        changes.effects.append(AnnouncePolicy(policy))
    for each in (who, heir):
        changes.ordering.reclass_all(each, now)
    changes.ordering.pay(heir)


def _give_uses(state: State, who: str, heir: str) -> None:
    """Whoever used a slot, or has it leave, goes by the new name."""
    for device in state.devices.values():
        for slot in device.slots.values():
            if who in slot.users:
                slot.users.remove(who)
                slot.users.add(heir)
            if slot.leaves_for == who:
                slot.leaves_for = heir
