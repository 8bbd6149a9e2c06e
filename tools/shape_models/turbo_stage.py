"""Distils the transformer into four steps without guidance.

The student learns to jump from one noise level to the next where the teacher, guided, takes
several small steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shape_models.context import Context
from shape_models.data_stage import empty_prompt, write_scenes
from shape_models.dit_stage import (
    T5_TOKENS,
    TIMESTEPS,
    compile_blocks,
    load_dit,
    load_texts,
    random_token_counts,
)
from shape_models.networks import (
    LATENT_CHANNELS,
    LATENT_SIDE,
    Condition,
    encode_pair,
    zero_token_bias,
)
from shape_models.optimizer import FlatOptimizer, Loss, Settings
from shape_models.plan import TurboPlan
from shape_models.training import Training


def sigmas_of(levels: int) -> list[float]:
    """The noise levels that FlowMatchEulerDiscreteScheduler(num_train_timesteps=levels) gives
    for as many steps: 1, 3/4, 1/2, 1/4 and the end."""
    return [1 - k / levels for k in range(levels + 1)]


@dataclass(frozen=True)
class Prompts:
    """Tokens of many prompts [n, 32], and of the empty one [32]."""

    tokens: Tensor
    empty: Tensor

    @staticmethod
    def write(context: Context, seed: int) -> Prompts:
        plan = context.plan
        _, tokens, _ = write_scenes(plan.turbo.scenes, plan.prompts_each, seed, plan.processes)
        every = torch.from_numpy(tokens.reshape(-1, tokens.shape[-1])).to(context.device)
        return Prompts(every, empty_prompt(context))


@dataclass(frozen=True)
class _Runs:
    """Where the teacher's runs stood at each level [levels + 1, n, 16, 16, 16], and the number
    of each run's prompt."""

    stops: Tensor
    prompts: Tensor


class _Teacher:
    """The guided transformer, one small step at a time over a fixed batch."""

    def __init__(self, context: Context, plan: TurboPlan) -> None:
        self._context, self._plan = context, plan
        size, device, sizes = plan.runs_batch, context.device, context.plan.sizes
        self.texts = load_texts(context)
        self._dit = load_dit(context).to(context.low).eval().requires_grad_(False)
        compile_blocks(self._dit, plan.training.compiled)
        shape = (size, LATENT_CHANNELS, LATENT_SIDE, LATENT_SIDE)
        self.latents = torch.zeros(shape, device=device)
        self._now, self._next = torch.ones((), device=device), torch.ones((), device=device)
        self._bias = zero_token_bias(torch.full((2 * size,), T5_TOKENS, device=device), sizes)
        self._condition: Condition | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def ask(self, tokens: Tensor, empty: Tensor) -> None:
        """Sets the prompts [batch, 32] of the runs to come."""
        both = torch.cat([empty.expand_as(tokens), tokens])
        told = encode_pair(*self.texts, both, self._context.vocabulary_end)
        if self._condition is None:
            self._condition = told
        self._condition.tokens.copy_(told.tokens)
        self._condition.pooled.copy_(told.pooled)
        if self._graph is None and self._context.device.type == "cuda":
            self._capture()

    def _capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._step()
            self._step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        self._graph = graph

    def _step(self) -> None:
        assert self._condition is not None
        count = 2 * len(self.latents)
        velocity = self._dit(
            hidden_states=torch.cat([self.latents] * 2).to(self._context.low),
            timestep=(self._now * TIMESTEPS).expand(count),
            encoder_hidden_states=self._condition.tokens,
            pooled_projections=self._condition.pooled,
            joint_attention_kwargs={"key_bias": self._bias},
            return_dict=False,
        )[0].float()
        bare, prompted = velocity.chunk(2)
        guided = bare + self._plan.guidance * (prompted - bare)
        self.latents.add_((self._next - self._now) * guided)

    def go(self, start: float, end: float) -> None:
        """Moves the latents from one noise level to another in `substeps` Euler steps."""
        width = (end - start) / self._plan.substeps
        for k in range(self._plan.substeps):
            self._now.fill_(start + k * width)
            self._next.fill_(start + (k + 1) * width)
            if self._graph is not None:
                self._graph.replay()
            else:
                self._step()


@torch.no_grad()
def _run_teacher(context: Context, teacher: _Teacher, prompts: Prompts, seed: int) -> _Runs:
    """The teacher walks from noise to a picture, for prompts drawn at random."""
    plan, device = context.plan.turbo, context.device
    torch.manual_seed(seed)
    sigmas = sigmas_of(plan.levels)
    shape = (plan.levels + 1, plan.runs, LATENT_CHANNELS, LATENT_SIDE, LATENT_SIDE)
    stops = torch.empty(shape, device=device, dtype=context.low)
    chosen = torch.randint(0, len(prompts.tokens), (plan.runs,), device=device)
    for start in range(0, plan.runs, plan.runs_batch):
        rows = slice(start, start + plan.runs_batch)
        teacher.ask(prompts.tokens[chosen[rows]].long(), prompts.empty)
        teacher.latents.normal_()
        stops[0, rows] = teacher.latents.to(context.low)
        for k in range(plan.levels):
            teacher.go(sigmas[k], sigmas[k + 1])
            stops[k + 1, rows] = teacher.latents.to(context.low)
    return _Runs(stops, chosen)


def _jump_loss(
    student: Any, runs: _Runs, texts: tuple[Any, Any], prompts: Prompts, context: Context
) -> Loss:
    """Squared error of the jump's velocity; the first level, which decides most, comes oftener.

    The student counts its levels down, 4, 3, 2, 1, as its scheduler's timesteps do.
    """
    plan, device = context.plan.turbo, context.device
    batch, levels = plan.training.batch, plan.levels

    def loss_of() -> tuple[Tensor, Tensor]:
        run = torch.randint(0, len(runs.prompts), (batch,), device=device)
        level = torch.randint(0, levels, (batch,), device=device)
        level = level.masked_fill(torch.rand(batch, device=device) < 0.15, 0)
        here, there = runs.stops[level, run].float(), runs.stops[level + 1, run].float()
        with torch.no_grad():
            tokens = prompts.tokens[runs.prompts[run]].long()
            told = encode_pair(*texts, tokens, context.vocabulary_end)
        bias = zero_token_bias(random_token_counts(batch, device), context.plan.sizes)
        velocity = student(
            hidden_states=here.to(context.low),
            timestep=(levels - level).float(),
            encoder_hidden_states=told.tokens,
            pooled_projections=told.pooled,
            joint_attention_kwargs={"key_bias": bias},
            return_dict=False,
        )[0].float()
        each = (velocity - (here - there) * levels).pow(2).mean((1, 2, 3))
        first = (each * (level == 0)).sum() / ((level == 0).sum() + 1e-6)
        return each.mean(), first.detach()

    return loss_of


@torch.no_grad()
def retime(student: Any, levels: int) -> None:
    """Makes the student read 4, 3, 2, 1 as the teacher reads 1000, 750, 500, 250.

    The first layer of the timestep's embedding gets the smallest change that does so: with four
    inputs and 256 columns the equations have an exact solution.
    """
    embedder = student.time_text_embed
    project, layer = embedder.time_proj, embedder.timestep_embedder.linear_1
    device = layer.weight.device
    counted = torch.arange(levels, 0, -1, device=device, dtype=torch.float32)
    read, meant = project(counted), project(counted * TIMESTEPS / levels)
    change = torch.linalg.lstsq(read.cpu(), (meant - read).cpu() @ layer.weight.float().cpu().T)
    layer.weight += change.solution.T.to(device)


def train_turbo(context: Context) -> None:
    """Leaves `turbo`: the student's transformer."""
    plan, seed = context.plan.turbo, context.plan.seed + 30
    prompts = Prompts.write(context, seed)
    teacher = _Teacher(context, plan)
    runs = _run_teacher(context, teacher, prompts, seed + 1)
    context.say(f"{plan.runs} runs of the teacher")
    student = load_dit(context)
    retime(student, plan.levels)
    optimizer = FlatOptimizer({"turbo": student}, context.device, Settings())
    compile_blocks(student, plan.training.compiled)
    loss = _jump_loss(student, runs, teacher.texts, prompts, context)
    schedule = plan.training.schedule
    Training("turbo", optimizer, loss, schedule, seed + 2, context.folder, context.clock).run()
    context.save("turbo", {name: t.half() for name, t in optimizer.export().items()})
