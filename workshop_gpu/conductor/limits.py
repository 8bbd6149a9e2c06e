"""Limits of time, each on its own: downloads, loads, waits, runs. None eats another's.

A load or run that takes too long is ended with its worker, because nothing else ends it for
sure; a run is asked to stop first. A run that makes no step, or an eviction that does not end, is
stuck in a call that does not return: its worker hangs, though it gives signs of life. Those who
were only beside it when their worker is ended are not blamed (see `Changes.put_back`). A wait does
not count while the queue is paused, and starts anew if its model was just being downloaded or
loaded when it was over.
"""

from workshop_gpu.conductor.changes import Changes
from workshop_gpu.conductor.effects import StopFetch, StopWorker
from workshop_gpu.conductor.errors import TimeLimit
from workshop_gpu.conductor.fetching import awaits_download
from workshop_gpu.conductor.people import with_names
from workshop_gpu.conductor.reasons import wait_reason, waiting_for
from workshop_gpu.conductor.records import Activity, Job, State
from workshop_gpu.conductor.states import JobState, SlotState

STOP_GRACE_S = 10.0
"""A run that was asked to stop has so long to do it."""
_STEPS_OF_GRACE = 10
"""A run may stand still for so many of its steps, as long as they were measured to be."""


def _unnamed(_: str) -> str:
    return "somebody"


class Limits:
    """Looks at the clock with every tick."""

    def __init__(self, state: State, changes: Changes) -> None:
        self._state = state
        self._changes = changes

    def enforce(self, now: float) -> None:
        """Ends what has taken too long."""
        settings = self._state.settings
        stop: dict[str, str] = {}
        if settings.download_limit_s:
            self._end_downloads(settings.download_limit_s, now)
        if settings.wait_limit_s:
            self._end_waits(settings.wait_limit_s, now)
        if settings.load_limit_s:
            stop |= self._end_loads(settings.load_limit_s, now)
        if settings.run_limit_s:
            stop |= self._end_runs(settings.run_limit_s, now)
        if settings.stall_limit_s:
            stop |= self._end_stalls(settings.stall_limit_s, now)
        for device in self._state.devices.values():
            at_rest = not (device.running or device.writing)
            if device.retires and at_rest and device.activity is Activity.IDLE:
                stop.setdefault(device.name, device.retires)
        for name, why in stop.items():
            device = self._state.devices[name]
            if not device.stopping:
                device.stopping = True
                self._changes.touch(device)
                self._changes.effects.append(StopWorker(name, why))

    def _end_downloads(self, limit_s: float, now: float) -> None:
        for name, model in self._state.models.items():
            if model.fetching and now - model.fetching_s >= limit_s:
                self._changes.effects.append(StopFetch(name))
                error = TimeLimit(f'The download of "{name}"', limit_s, "Ask the instructor.")
                self._changes.fail_fetch(name, error.report(), now)

    def _end_waits(self, limit_s: float, now: float) -> None:
        state = self._state
        for name in state.waiting_times.over(limit_s, now):
            job = state.queue.get(name)
            if job is None:
                continue
            if self._is_prepared(job):
                state.waiting_times.begin(name, now)
            else:
                # An error is kept for days, and in places where nobody puts names into it.
                reason = with_names(wait_reason(state, waiting_for(state, job)), _unnamed)
                advice = f"{reason} Try again later.".strip()
                error = TimeLimit("Waiting in the queue", limit_s, advice)
                self._changes.end_job(job, JobState.FAILED, now, error.report())

    def _is_prepared(self, job: Job) -> bool:
        state = self._state
        return awaits_download(state, job.model) or state.has_slot(job.model, SlotState.LOADING)

    def _end_loads(self, limit_s: float, now: float) -> dict[str, str]:
        """Says which workers end, and why."""
        stop: dict[str, str] = {}
        for device in self._state.devices.values():
            slot = device.slots.get(device.subject)
            if slot is None or slot.state is not SlotState.LOADING or slot.error is not None:
                continue
            if now - slot.since_s >= limit_s:
                advice = "Its files may lie on a slow disk: ask the instructor."
                slot.error = TimeLimit(f'Loading "{slot.model}"', limit_s, advice).report()
                stop[device.name] = slot.error.message
        return stop

    def _end_runs(self, limit_s: float, now: float) -> dict[str, str]:
        """Says which workers end, and why."""
        stop: dict[str, str] = {}
        for job in self._state.running.values():
            ran_s = now - job.started_s
            if ran_s >= limit_s and job.error is None:
                advice = "Ask for fewer steps, a smaller picture or fewer images at once."
                what = f'Generating with "{job.model}"'
                job.error = TimeLimit(what, limit_s, advice).report()
                self._changes.ask_cancel(job)
            if ran_s >= limit_s + STOP_GRACE_S and job.device:
                stop[job.device] = "a job took too long and did not stop"
        return stop

    def _end_stalls(self, limit_s: float, now: float) -> dict[str, str]:
        """Says which workers hang, and in what. While a model is loaded drawing may have to wait
        for it, so that the time begins anew. Pictures that do not become files count where others
        wait for that."""
        stop: dict[str, str] = {}
        for device in self._state.devices.values():
            if device.stopping:
                continue  # for what has been found already
            if device.activity is Activity.EVICTING and now - device.since_s >= limit_s:
                stop[device.name] = f'it hung: "{device.subject}" did not leave for {limit_s:g} s'
                continue  # and may have kept its jobs
            for job in device.at_work if device.is_alone else device.running.values():
                if device.activity is Activity.LOADING:
                    job.moved_s = now
                still_s = now - job.moved_s
                if still_s >= limit_s and still_s >= _STEPS_OF_GRACE * self._step_s(job):
                    job.stuck = True
                    stop[device.name] = f"it hung: a job made no step for {still_s:.0f} s"
        return stop

    def _step_s(self, job: Job) -> float:
        """Seconds of one of its steps as far as such were measured, else 0."""
        run_s = self._state.run_s(job, job.batch)
        return (run_s or 0.0) / max(1, job.request.steps)
