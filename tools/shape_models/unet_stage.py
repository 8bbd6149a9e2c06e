"""The UNet of `shapes` with its text encoder: velocity prediction, zero terminal signal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shape_models.context import Context
from shape_models.data_stage import TrainingSet
from shape_models.networks import FactHeads, build_text, build_unet, encode_text
from shape_models.optimizer import FlatOptimizer, Loss, Settings
from shape_models.training import Training

BETA_START, BETA_END, TIMESTEPS = 0.00085, 0.012, 1000


def noise_levels(device: torch.device) -> tuple[Tensor, Tensor]:
    """Signal and noise at each timestep, as DDIMScheduler(rescale_betas_zero_snr=True) has them
    (Lin and others, 2024, "Common diffusion noise schedules and sample steps are flawed")."""
    betas = torch.linspace(BETA_START**0.5, BETA_END**0.5, TIMESTEPS, dtype=torch.float64) ** 2
    signal = torch.cumprod(1 - betas, 0).sqrt()
    first, last = signal[0].clone(), signal[-1].clone()
    signal = (signal - last) * first / (first - last)
    noise = (1 - signal**2).sqrt()
    return signal.float().to(device), noise.float().to(device)


def velocity_loss(unet: Any, data: TrainingSet, batch: int, text_of: Any, context: Context) -> Loss:
    """`text_of(tokens, facts)` gives the states the UNet attends to, and an extra loss."""
    signal_at, noise_at = noise_levels(context.device)

    def loss_of() -> tuple[Tensor, Tensor]:
        clean, tokens, facts = data.batch(batch)
        noise = torch.randn_like(clean)
        timestep = torch.randint(0, TIMESTEPS, (batch,), device=context.device)
        signal = signal_at[timestep][:, None, None, None]
        level = noise_at[timestep][:, None, None, None]
        states, extra = text_of(tokens, facts)
        noisy = (signal * clean + level * noise).to(context.low)
        noisy = noisy.contiguous(memory_format=torch.channels_last)
        guess = unet(noisy, timestep, encoder_hidden_states=states, return_dict=False)[0]
        error = (guess.float() - (signal * noise - level * clean)).pow(2).mean()
        return error + extra, error.detach()

    return loss_of


def train_unet(context: Context) -> None:
    """Leaves `unet`: the UNet and its text encoder."""
    plan = context.plan.unet
    torch.manual_seed(context.plan.seed + 10)
    vocabulary = context.vocabulary
    unet = build_unet(context.plan.sizes)
    text = build_text(context.plan.sizes.unet_text, vocabulary)
    heads = FactHeads(context.plan.sizes.unet_text.width)
    modules = {"unet": unet, "text": text, "heads": heads}
    optimizer = FlatOptimizer(modules, context.device, Settings(), channels_last=True)

    def text_of(tokens: Tensor, facts: Tensor) -> tuple[Tensor, Tensor]:
        encoded = encode_text(text, tokens, vocabulary.end)
        return encoded.last, plan.facts_weight * heads.loss(encoded.at_end, facts)

    loss = velocity_loss(unet, TrainingSet.load(context), plan.batch, text_of, context)
    seed = context.plan.seed + 11
    Training("unet", optimizer, loss, plan.schedule, seed, context.folder, context.clock).run()
    context.save("unet", _without_heads(optimizer.export()))


def _without_heads(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.half() for name, t in tensors.items() if not name.startswith("heads")}
