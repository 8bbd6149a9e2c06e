"""Metrics for Prometheus, on the Jupyter server's own `/metrics`.

Counters are made from what happened (see `happenings.py`), gauges from the state at the moment of
the scrape. No label names a participant: labels are devices, models, and words of ours, and models
beyond the first hundred are counted as "other", so that the number of series is bounded.
"""

from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from workshop_gpu.conductor.effects import Snapshot
from workshop_gpu.conductor.states import DeviceState, JobState, SlotState
from workshop_gpu.host.happenings import Evicted, Happening, JobEnded, Loaded, LoadFailed

_MOST_MODELS = 100
_OTHER = "other"
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)
_KINDS = (
    "weights", "freeing", "working", "kept_free", "cache", "reservation", "foreign", "margin",
)  # fmt: skip
_SHOWN_SLOTS = (SlotState.LOADING, SlotState.READY, SlotState.LEAVING, SlotState.FAILED)


class Metrics(Collector):
    """One server's metrics. `snapshot` is called at each scrape, on the event loop's thread."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._known: set[str] = set()
        self._served = False
        own = self._own = CollectorRegistry(auto_describe=False)
        self._jobs = Counter(
            "workshop_gpu_jobs", "Jobs that ended", ("model", "outcome"), registry=own
        )
        self._waits = Histogram(
            "workshop_gpu_job_wait_seconds",
            "From a job's acceptance to its start",
            ("model",),
            buckets=_SECONDS,
            registry=own,
        )
        self._gpu = Counter(
            "workshop_gpu_gpu_seconds", "Seconds that jobs had a GPU", ("model",), registry=own
        )
        self._loads = Counter(
            "workshop_gpu_loads", "Loads that ended", ("device", "model", "outcome"), registry=own
        )
        self._load_seconds = Histogram(
            "workshop_gpu_load_seconds",
            "How long loads took that worked",
            ("model",),
            buckets=_SECONDS,
            registry=own,
        )
        self._evictions = Counter(
            "workshop_gpu_evictions", "Models that left a GPU", ("device", "model"), registry=own
        )
        self._evicted_bytes = Counter(
            "workshop_gpu_evicted_bytes",
            "Bytes that came back when models left",
            ("device",),
            registry=own,
        )

    # the server's life

    def serve(self) -> None:
        """From now on they are part of what this process exports."""
        REGISTRY.register(self)
        self._served = True

    def stop(self) -> None:
        """They are no longer; nothing happens where they never were."""
        if self._served:
            REGISTRY.unregister(self)
        self._served = False

    def describe(self) -> Iterable[Metric]:
        """Nothing: so that two servers in one process, as in tests, do not collide."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._own.collect()
        yield from gauges(self._snapshot(), self._label)

    # what happens

    def note(self, happening: Happening) -> None:
        """Counts it."""
        match happening:
            case JobEnded():
                self._job_ended(happening)
            case Loaded(device, model, _, seconds_s):
                self._loads.labels(device, self._label(model), "loaded").inc()
                if seconds_s is not None:
                    self._load_seconds.labels(self._label(model)).observe(seconds_s)
            case LoadFailed(device, model):
                self._loads.labels(device, self._label(model), "failed").inc()
            case Evicted(device, model, freed_bytes):
                self._evictions.labels(device, self._label(model)).inc()
                self._evicted_bytes.labels(device).inc(max(0, freed_bytes))

    def _job_ended(self, ended: JobEnded) -> None:
        model = self._label(ended.model)
        self._jobs.labels(model, ended.outcome.value).inc()
        if ended.wait_s is not None:
            self._waits.labels(model).observe(max(0.0, ended.wait_s))
            self._gpu.labels(model).inc(max(0.0, ended.gpu_s))

    def _label(self, model: str) -> str:
        if model not in self._known:
            if len(self._known) >= _MOST_MODELS:
                return _OTHER
            self._known.add(model)
        return model


def gauges(now: Snapshot, label: Callable[[str], str]) -> Iterator[Metric]:
    """The state at one moment."""
    held = GaugeMetricFamily(
        "workshop_gpu_vram_bytes", "GPU memory by who holds it", labels=("device", "holder")
    )
    total = GaugeMetricFamily("workshop_gpu_vram_total_bytes", "GPU memory", labels=("device",))
    up = GaugeMetricFamily(
        "workshop_gpu_device_up", "Whether the GPU's worker stands ready", labels=("device",)
    )
    for view in now.devices:
        by_kind = dict.fromkeys((*_KINDS, "free"), 0)
        for holder in view.holders:
            by_kind[holder.kind] += holder.bytes
        by_kind["free"] = max(0, view.free_bytes)
        for kind, size_bytes in by_kind.items():
            held.add_metric((view.device, kind), size_bytes)
        total.add_metric((view.device,), view.total_bytes)
        up.add_metric((view.device,), float(view.state == DeviceState.READY.value))
    yield from (held, total, up, _slots(now), _model_bytes(now, label), _jobs(now))


def _slots(now: Snapshot) -> Metric:
    slots = GaugeMetricFamily(
        "workshop_gpu_slots", "Models on GPUs by state", labels=("device", "state")
    )
    counted = Count((slot.device, slot.state) for slot in now.slots)
    for view in now.devices:
        for state in _SHOWN_SLOTS:
            slots.add_metric((view.device, state.value), counted[view.device, state])
    return slots


def _model_bytes(now: Snapshot, label: Callable[[str], str]) -> Metric:
    weights = GaugeMetricFamily(
        "workshop_gpu_model_bytes",
        "Weights of models on GPUs; parts that models share count for each",
        labels=("device", "model"),
    )
    sums: dict[tuple[str, str], int] = {}
    for slot in now.slots:
        key = slot.device, label(slot.model)
        sums[key] = sums.get(key, 0) + slot.bytes
    for key, size_bytes in sums.items():
        weights.add_metric(key, size_bytes)
    return weights


def _jobs(now: Snapshot) -> Metric:
    jobs = GaugeMetricFamily("workshop_gpu_jobs_now", "Jobs that wait or run", labels=("state",))
    counted = Count(job.state for job in now.jobs)
    for state in (JobState.QUEUED, JobState.RUNNING):
        jobs.add_metric((state.value,), counted[state])
    return jobs
