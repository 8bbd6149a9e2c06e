"""What a half-finished picture will become: its latents without their noise.

After each step the latents are `signal * final + noise * eps`, with known factors. A sampler that
adds no new noise keeps `eps` over one step as its network predicts it, so two steps in a row give
two equations for `final`: no look into the network is needed, whatever it predicts (eps, v, flow).
"""

import math
from typing import Any

import torch

from workshop_gpu.worker.drawing import Step

_NEW_NOISE = ("Ancestral", "SDE", "LCM", "DDPM", "TCD")
_UNSCALED = ("Euler", "LMS", "Heun", "KDPM")
"""Samplers whose latents are `final + sigma * eps`; others with sigmas preserve the variance."""


def predicted_final(before: Step | None, step: Step) -> torch.Tensor:
    """The latents that the picture heads for.

    Without a step before they are the latents scaled to variance one, and with an unknown sampler
    the latents as they are.
    """
    signal, noise = noise_level(step) or (1.0, 0.0)
    if noise == 0.0:
        return step.latents
    level_before = noise_level(before) if before is not None else None
    if before is None or level_before is None or _adds_new_noise(step.scheduler):
        return step.latents / math.hypot(signal, noise)
    signal_before, noise_before = level_before
    determinant = noise_before * signal - noise * signal_before
    if abs(determinant) < 1e-6:
        return step.latents
    now, then = step.latents.float(), before.latents.float()
    final: torch.Tensor = (noise_before * now - noise * then) / determinant
    return final


def noise_level(step: Step) -> tuple[float, float] | None:
    """The factors (signal, noise) of the latents after this step; None: unknown sampler."""
    name = type(step.scheduler).__name__
    # A call that begins with a picture leaves out the first of the scheduler's steps.
    skipped = max(0, len(getattr(step.scheduler, "timesteps", ())) - step.count)
    reached = skipped + step.index + 1
    sigmas = getattr(step.scheduler, "sigmas", None)
    if sigmas is not None and len(sigmas) > reached:
        sigma = float(sigmas[reached])
        config: Any = step.scheduler.config
        if "FlowMatch" in name or config.get("use_flow_sigmas"):
            return 1.0 - sigma, sigma
        if any(part in name for part in _UNSCALED):
            return 1.0, sigma
        scale = (1.0 + sigma**2) ** -0.5
        return scale, sigma * scale
    alphas = getattr(step.scheduler, "alphas_cumprod", None)
    if alphas is None:
        return None
    timesteps = step.scheduler.timesteps
    if reached >= len(timesteps):
        return 1.0, 0.0
    alpha = float(alphas[int(timesteps[reached])])
    return alpha**0.5, (1.0 - alpha) ** 0.5


def _adds_new_noise(scheduler: Any) -> bool:
    return any(part in type(scheduler).__name__ for part in _NEW_NOISE)
