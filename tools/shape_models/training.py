"""The loop: a learning-rate schedule, captured steps, checkpoints, and a time to stop."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from shape_models.optimizer import FlatOptimizer, Loss

LEG_STEPS = 250
"""The random numbers are seeded anew each so many steps, so that a training which was stopped
between two legs goes on as if it had not been."""

CHECKPOINT_EVERY_S = 30.0


class StoppedEarly(Exception):
    """The time allowed was over before the training; call again to go on."""

    def __init__(self, name: str, done: int, steps: int) -> None:
        super().__init__(f"{name} stopped after {done} of {steps} steps; run again to go on")
        self.name, self.done, self.steps = name, done, steps


@dataclass(frozen=True)
class Schedule:
    """Learning rate: up over the first `warm` of the steps, held to `hold`, then down a cosine
    to `floor` times the peak."""

    steps: int
    peak: float
    warm: float = 0.02
    hold: float = 0.3
    floor: float = 0.02

    def rate(self, step: int) -> float:
        """The learning rate of a step counted from 0."""
        part = step / self.steps
        if part < self.warm:
            return self.peak * max(part, 1e-3) / self.warm
        if part < self.hold:
            return self.peak
        cosine = 0.5 * (1 + math.cos(math.pi * (part - self.hold) / (1 - self.hold)))
        return self.peak * (self.floor + (1 - self.floor) * cosine)


class Clock:
    """Tells whether a command's time is over; `stop_after_s` None means never."""

    def __init__(self, stop_after_s: float | None) -> None:
        self._start = time.monotonic()
        self._stop_after_s = stop_after_s

    def now_s(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self._start

    def is_over(self) -> bool:
        return self._stop_after_s is not None and self.now_s() > self._stop_after_s


class Training:
    """Runs one optimizer down one loss, in one CUDA graph where there is CUDA."""

    def __init__(
        self,
        name: str,
        optimizer: FlatOptimizer,
        loss_of: Loss,
        schedule: Schedule,
        seed: int,
        folder: Path,
        clock: Clock,
    ) -> None:
        self.name, self.optimizer, self.schedule, self.seed = name, optimizer, schedule, seed
        self._loss_of, self._clock = loss_of, clock
        self._checkpoint = folder / f"{name}.checkpoint.safetensors"
        self._graph: torch.cuda.CUDAGraph | None = None
        self.trained_s = 0.0

    def run(self) -> None:
        """Trains to the end of the schedule, from the checkpoint if there is one.

        Raises StoppedEarly at the end of a leg once the clock's time is over.
        """
        step = self._load()
        if self.optimizer.device.type == "cuda":
            self._capture()
        started = saved = time.monotonic()
        before_s = self.trained_s
        steps = self.schedule.steps
        while step < steps:
            torch.manual_seed(self.seed * 1_000_003 + step)
            end = min(step + LEG_STEPS, steps)
            for number in range(step, end):
                self.optimizer.rate.fill_(self.schedule.rate(number))
                self._step()
            step = end
            if self.optimizer.device.type == "cuda":
                torch.cuda.synchronize()
            now = time.monotonic()
            self.trained_s = before_s + now - started
            over = self._clock.is_over() and step < steps
            if over or now - saved > CHECKPOINT_EVERY_S or step == steps:
                saved = now
                self._report(step)
            if over or (now == saved and step < steps):
                self._save(step)
            if over:
                raise StoppedEarly(self.name, step, steps)
        self._checkpoint.unlink(missing_ok=True)

    def _step(self) -> None:
        if self._graph is not None:
            self._graph.replay()
        else:
            self.optimizer.step(self._loss_of)

    def _capture(self) -> None:
        """Records one whole step. The steps that warm it up are taken back afterwards."""
        before = {name: tensor.clone() for name, tensor in self.optimizer.state().items()}
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.optimizer.step(self._loss_of)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.optimizer.step(self._loss_of)
        self.optimizer.restore(before)
        self._graph = graph

    def _report(self, step: int) -> None:
        loss, watched, norm = self.optimizer.watched.tolist()
        each_ms = 1000 * self.trained_s / max(step, 1)
        print(
            f"[{self._clock.now_s():6.1f}] {self.name} {step}/{self.schedule.steps} "
            f"loss {loss:.4f} watched {watched:.4f} gradient {norm:.2f} {each_ms:.2f} ms a step",
            flush=True,
        )

    def _save(self, step: int) -> None:
        state = {name: tensor.cpu() for name, tensor in self.optimizer.state().items()}
        state["step"] = torch.tensor(step)
        state["trained_s"] = torch.tensor(self.trained_s, dtype=torch.float64)
        partial = self._checkpoint.with_suffix(".partial")
        save_file(state, partial)
        partial.replace(self._checkpoint)

    def _load(self) -> int:
        if not self._checkpoint.exists():
            return 0
        state: dict[str, Tensor] = load_file(self._checkpoint)
        step, self.trained_s = int(state.pop("step")), float(state.pop("trained_s"))
        self.optimizer.restore(state)
        return step
