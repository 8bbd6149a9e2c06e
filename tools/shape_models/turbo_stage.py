"""The four-step variant: the trained transformer, reading its time off a clock with four ticks.

A plain flow-matching schedule of four steps ends at noise level 0.001, so its last step does
nothing. With as many training timesteps as steps, FlowMatchEulerDiscreteScheduler gives the
levels 1, 3/4, 1/2, 1/4, and each step counts; but then the timesteps are 4, 3, 2, 1. So the
first layer of the timestep's embedding is changed to read these as it read 1000, 750, 500, 250.

There is no distillation: guidance and many steps add little to paths this straight, as the
table in docs/models.md shows.
"""

from __future__ import annotations

from typing import Any

import torch

from shape_models.context import Context
from shape_models.dit_stage import TIMESTEPS, load_dit


@torch.no_grad()
def retime(transformer: Any, levels: int) -> None:
    """Makes the transformer read `levels` to 1 as it read 1000 to 1000 / `levels`.

    The change is the smallest that does so: with four equations in 256 unknowns a column there
    is an exact solution among the sums of what is read. Levels in between come out near enough
    for other numbers of steps.
    """
    embedder = transformer.time_text_embed
    project, layer = embedder.time_proj, embedder.timestep_embedder.linear_1
    counted = torch.arange(levels, 0, -1, device=layer.weight.device, dtype=torch.float32)
    read, meant = project(counted).cpu().double(), project(counted * TIMESTEPS / levels).cpu()
    wanted = (meant.double() - read) @ layer.weight.cpu().double().T
    change = read.T @ torch.linalg.solve(read @ read.T, wanted)
    layer.weight += change.T.to(layer.weight)


def make_turbo(context: Context) -> None:
    """Leaves `turbo`: the transformer of the four-step variant."""
    transformer = load_dit(context)
    retime(transformer, context.plan.turbo_levels)
    weights = {f"turbo.{name}": p.detach().half() for name, p in transformer.named_parameters()}
    context.save("turbo", {name: tensor.cpu() for name, tensor in weights.items()})
