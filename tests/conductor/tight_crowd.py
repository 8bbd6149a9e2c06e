"""A crowd on small cards: it names rungs and manners, runs out of memory often, and what the
instructor has said of models' memory stays in force to the end."""

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.conductor.crowd import Crowd, numbers, people, pixels
from tests.conductor.offered import LADDERED, PHASES, fact
from tests.conductor.staging import GB
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.ladder import RUNGS
from workshop_gpu.conductor.memory_settings import MemorySettings
from workshop_gpu.conductor.states import Priority

_RUNGS = tuple(rung.name for rung in RUNGS)
_BY_HAND = ("encoders=cpu,vae=tiled", "denoiser=all-streamed", "encoders=streamed,denoiser=staged")
_MANNERS = ("exact", "cpu-encoders", "tiled", "tiled+cpu-encoders", "tiled+sliced+cpu-encoders")


class TightCrowd(Crowd):
    """Most of its jobs are for models that can be placed in many ways."""

    @initialize(
        queue_limit=st.integers(1, 3),
        count=st.sampled_from((1, 2, 2, 2)),
        first_gb=st.sampled_from((80, 48, 24)),
        second_gb=st.sampled_from((80, 24, 12)),
        batch_limit=st.sampled_from((1, 3)),
        wait_limit_s=st.sampled_from((0.0, 0.0, 0.0, 90.0)),
        bustle=st.sampled_from((0.0, 0.5, 0.9)),
        dice=st.integers(0, 1000),
    )
    def open(self, first_gb: int, **drawn: Any) -> None:
        self.first_gb = first_gb
        super().open(**drawn)

    @rule(
        who=people,
        model=st.sampled_from((*LADDERED * 3, "a", "tiny", "far")),
        size=pixels,
        priority=st.sampled_from(list(Priority)),
        alone=st.booleans(),
        rung=st.sampled_from((*[""] * 8, *_RUNGS)),
        manner=st.sampled_from((*[""] * 5, *_MANNERS)),
    )
    def submit(self, *asked: Any, **wanted: Any) -> None:
        super().submit(*asked, **wanted)

    @precondition(lambda self: self.out.busy)
    @rule(number=numbers, phase=st.sampled_from(PHASES))
    def out_of_memory(self, number: int, phase: str) -> None:
        device = self.some_busy(number)
        worker = self.out.workers[device]
        error = ErrorReport("out_of_memory", "no memory", {"phase": phase})
        match worker.orders[number % len(worker.orders)]:
            case effects.LoadModel(_, model):
                self.tell(events.LoadFailed(device, model, error))
            case effects.RunJob():
                job = worker.unanswered[number % len(worker.unanswered)]
                self.tell(events.JobFailed(job, error))

    @rule(
        model=st.sampled_from(LADDERED),
        placement=st.sampled_from((*["auto"] * 3, *_RUNGS, *_BY_HAND)),
        cap_gb=st.sampled_from((0, 0, 12, 25, 40)),
        swap=st.sampled_from(("", "", "gpu0", "gpu1")),
        virtual_gb=st.sampled_from((0, 0, 0, 5)),
        least_gb=st.sampled_from((0, 0, 0, 4, 10)),
        space_gb=st.sampled_from((0, 0, 0, 1, 4)),
        prefetch=st.sampled_from((1, 1, 2, 4)),
    )
    def change_memory(
        self,
        model: str,
        placement: str,
        cap_gb: int,
        swap: str,
        virtual_gb: int,
        least_gb: int,
        space_gb: int,
        prefetch: int,
    ) -> None:
        self.facts[model] = fact(
            model,
            memory=MemorySettings(
                placement=placement,
                max_vram_bytes=cap_gb * GB,
                swap_device=swap,
                virtual_vram_bytes=virtual_gb * GB,
                min_free_bytes=least_gb * GB,
                swap_space_bytes=space_gb * GB,
                prefetch=prefetch,
            ),
        )
        self.tell_catalogue()

    def tell_ready(self, device: str, foreign_gb: int = 0) -> None:
        self.sizes_gb["gpu0"] = self.first_gb
        super().tell_ready(device, foreign_gb)

    def calm(self, name: str, **more: object) -> events.ModelFacts:
        kept = self.facts.get(name)
        return fact(name, memory=kept.memory if kept else MemorySettings(), **more)
