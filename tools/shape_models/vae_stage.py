"""The autoencoder, shared by all models: trained small first, then on whole pictures."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shape_models.context import Context, part
from shape_models.drawing import Style, draw_anything, draw_packed
from shape_models.networks import LATENT_CHANNELS, LATENT_SCALE, build_vae
from shape_models.optimizer import FlatOptimizer, Loss, Settings
from shape_models.plan import VaePlan
from shape_models.scenes import pack
from shape_models.training import Schedule, Training
from shape_models.words import SIZE_PX

SMALL_PX = 64
OUTLINED = 0.2
"""Share of pictures of outlines, for the adapters that draw them."""


def train_vae(context: Context) -> None:
    """Leaves `vae`: a quarter of the cost per picture at 64 px, where most pixels lie near an
    edge; then the real scenes at 128 px; then the latents are whitened."""
    plan, folder = context.plan.vae, context.folder
    torch.manual_seed(context.plan.seed)
    if not context.has("vae-small"):
        vae = build_vae(context.plan.sizes)
        optimizer = _optimizer(vae, context)
        pool = _small_pool(context, plan)
        loss = _loss(vae, pool, plan.small_batch, plan, context)
        _train(context, "vae-64px", optimizer, loss, plan.small)
        context.save("vae-small", optimizer.export())
        del pool, loss
    vae = build_vae(context.plan.sizes)
    vae.load_state_dict(part(context.load("vae-small"), "vae"))
    optimizer = _optimizer(vae, context)
    pool = _large_pool(context, plan)
    loss = _loss(vae, pool, plan.large_batch, plan, context)
    _train(context, "vae-128px", optimizer, loss, plan.large)
    vae = build_vae(context.plan.sizes)
    vae.load_state_dict(part(optimizer.export(), "vae"))
    vae.to(context.device).eval()
    _whiten(vae, pool, context)
    context.save("vae", {f"vae.{name}": t.cpu() for name, t in vae.state_dict().items()})
    (folder / "vae-small.safetensors").unlink()


def _optimizer(vae: Any, context: Context) -> FlatOptimizer:
    settings = Settings(weight_decay=0.0, mean_decay=0.998)
    return FlatOptimizer({"vae": vae}, context.device, settings)


def _train(
    context: Context, name: str, optimizer: FlatOptimizer, loss: Loss, schedule: Schedule
) -> None:
    seed = context.plan.seed + 1
    Training(name, optimizer, loss, schedule, seed, context.folder, context.clock).run()


def _bytes(pictures: Tensor) -> Tensor:
    return ((pictures + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def _style(k: int) -> Style:
    return Style.OUTLINED if k % round(1 / OUTLINED) == 0 else Style.FILLED


def _small_pool(context: Context, plan: VaePlan) -> Tensor:
    chunk = min(512, plan.small_pool // 4)
    return torch.cat(
        [
            _bytes(draw_anything(chunk, context.device, SMALL_PX, _style(k)))
            for k in range(plan.small_pool // chunk)
        ]
    )


def _large_pool(context: Context, plan: VaePlan) -> Tensor:
    """Three quarters real scenes, one quarter shapes anywhere."""
    from shape_models.data_stage import make_scenes

    scenes = torch.from_numpy(pack(make_scenes(plan.large_pool, context.plan.seed + 2)))
    chunk = min(128, plan.large_pool // 4)
    parts = []
    for k, start in enumerate(range(0, plan.large_pool, chunk)):
        if k % 4 == 3:
            drawn = draw_anything(chunk, context.device, SIZE_PX, _style(k // 4))
        else:
            drawn = draw_packed(scenes[start : start + chunk].to(context.device), _style(k))
        parts.append(_bytes(drawn))
    return torch.cat(parts)


def _loss(vae: Any, pool: Tensor, batch: int, plan: VaePlan, context: Context) -> Loss:
    """Absolute and squared error, and a trace of divergence from the normal distribution."""

    def loss_of() -> tuple[Tensor, Tensor]:
        chosen = torch.randint(0, len(pool), (batch,), device=pool.device)
        pictures = pool[chosen].float() / 127.5 - 1
        moments = vae.quant_conv(vae.encoder(pictures.to(context.low))).float()
        mean, log_variance = moments.chunk(2, 1)
        log_variance = log_variance.clamp(-20, 10)
        latents = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        drawn = vae.decoder(vae.post_quant_conv(latents.to(context.low))).float()
        error = drawn - pictures
        divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).mean()
        squared = error.pow(2).mean()
        loss = error.abs().mean() + 0.5 * squared + plan.divergence * divergence
        return loss, squared

    return loss_of


@torch.no_grad()
def _whiten(vae: Any, pool: Tensor, context: Context) -> None:
    """Folds each channel's mean and spread into the two 1x1 convolutions around the latents.

    Afterwards latents have mean 0 and variance 1 once multiplied by LATENT_SCALE, with no
    `shift_factor`, so one file serves both families of models.
    """
    pictures = [pool[k :: max(1, len(pool) // 256)][:64].float() / 127.5 - 1 for k in range(8)]
    moments = [vae.quant_conv(vae.encoder(batch)).chunk(2, 1) for batch in pictures]
    mean_of = torch.cat([mean for mean, _ in moments])
    variance_of = torch.cat([log_variance.exp() for _, log_variance in moments])
    mean = mean_of.mean((0, 2, 3))
    spread = (mean_of.var((0, 2, 3)) + variance_of.mean((0, 2, 3))).sqrt()
    before = vae.decoder(vae.post_quant_conv(moments[0][0]))
    error = (before.clamp(-1, 1) - pictures[0]).pow(2).mean()
    context.say(f"autoencoder: {10 * torch.log10(4 / error):.2f} dB")
    into, out = vae.quant_conv, vae.post_quant_conv
    scale, channels = spread * LATENT_SCALE, LATENT_CHANNELS
    out.bias.add_(out.weight[:, :, 0, 0] @ mean)
    out.weight.mul_(scale[None, :, None, None])
    into.weight[:channels] /= scale[:, None, None, None]
    into.bias[:channels] = (into.bias[:channels] - mean) / scale
    into.bias[channels:] -= 2 * scale.log()
    latents = vae.quant_conv(vae.encoder(pictures[0])).chunk(2, 1)[0]
    after = vae.decoder(vae.post_quant_conv(latents))
    context.say(f"whitening changed pictures by at most {(after - before).abs().max():.1e}")
