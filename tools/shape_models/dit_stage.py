"""The transformer of `shapes-dit` with its two text encoders: flow matching."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from shape_models.context import Context, part
from shape_models.data_stage import TrainingSet
from shape_models.networks import (
    BiasedJointAttention,
    FactHeads,
    build_dit,
    build_text,
    encode_pair,
    zero_token_bias,
)
from shape_models.optimizer import FlatOptimizer, Loss, Settings
from shape_models.training import Training

TIMESTEPS = 1000
T5_TOKENS = 256
"""How many tokens diffusers puts in T5's place unless told otherwise."""


def random_sigmas(count: int, device: torch.device) -> Tensor:
    """Noise levels to learn at: three quarters logit-normal, as Stable Diffusion 3 has them,
    leaning to the noisy side; one quarter even, so that the ends are learnt too."""
    peaked = torch.sigmoid(torch.randn(count, device=device) + 0.3)
    even = torch.rand(count, device=device)
    return torch.where(torch.rand(count, device=device) < 0.25, even, peaked)


def random_token_counts(count: int, device: torch.device) -> Tensor:
    """How many zero tokens stand in T5's place: mostly 256, else 1 to 512, so that
    `max_sequence_length` may be chosen freely."""
    any_count = torch.exp(torch.rand(count, device=device) * math.log(512.0))
    usual = torch.rand(count, device=device) < 0.6
    return torch.where(usual, torch.full_like(any_count, T5_TOKENS), any_count)


def compile_blocks(dit: Any, wanted: bool) -> None:
    """Fuses each block's small operations; blocks of one kind are compiled once."""
    if wanted:
        for block in dit.transformer_blocks:
            block.compile(dynamic=False)


def flow_loss(dit: Any, data: TrainingSet, batch: int, text_of: Any, context: Context) -> Loss:
    """`text_of(tokens, facts)` gives a Condition and an extra loss."""

    def loss_of() -> tuple[Tensor, Tensor]:
        clean, tokens, facts = data.batch(batch)
        noise = torch.randn_like(clean)
        sigma = random_sigmas(batch, context.device)
        level = sigma[:, None, None, None]
        condition, extra = text_of(tokens, facts)
        bias = zero_token_bias(random_token_counts(batch, context.device), context.plan.sizes)
        guess = dit(
            hidden_states=((1 - level) * clean + level * noise).to(context.low),
            timestep=sigma * TIMESTEPS,
            encoder_hidden_states=condition.tokens,
            pooled_projections=condition.pooled,
            joint_attention_kwargs={"key_bias": bias},
            return_dict=False,
        )[0]
        error = (guess.float() - (noise - clean)).pow(2).mean()
        return error + extra, error.detach()

    return loss_of


def train_dit(context: Context) -> None:
    """Leaves `dit`: the transformer and its two text encoders."""
    plan, sizes = context.plan.dit, context.plan.sizes
    torch.manual_seed(context.plan.seed + 20)
    vocabulary = context.vocabulary
    dit = build_dit(sizes)
    dit.set_attn_processor(BiasedJointAttention())
    first, second = (build_text(size, vocabulary) for size in sizes.dit_text)
    heads, pooled_heads = FactHeads(sizes.dit_width), FactHeads(sizes.dit_width)
    modules = {
        "dit": dit,
        "text1": first,
        "text2": second,
        "heads": heads,
        "pooled_heads": pooled_heads,
    }
    optimizer = FlatOptimizer(modules, context.device, Settings())
    compile_blocks(dit, plan.compiled)

    def text_of(tokens: Tensor, facts: Tensor) -> tuple[Any, Tensor]:
        condition = encode_pair(first, second, tokens, vocabulary.end)
        extra = heads.loss(condition.at_end, facts) + pooled_heads.loss(condition.pooled, facts)
        return condition, plan.facts_weight * extra / 2

    loss = flow_loss(dit, TrainingSet.load(context), plan.batch, text_of, context)
    seed = context.plan.seed + 21
    Training("dit", optimizer, loss, plan.schedule, seed, context.folder, context.clock).run()
    context.save(
        "dit", {name: t.half() for name, t in optimizer.export().items() if "heads" not in name}
    )


def load_dit(context: Context, prefix: str = "dit", file: str = "dit") -> Any:
    """The trained transformer, ready to go on from, on the device."""
    dit = build_dit(context.plan.sizes)
    dit.load_state_dict(part(context.load(file), prefix), strict=False)
    dit.set_attn_processor(BiasedJointAttention())
    return dit.to(context.device)


def load_texts(context: Context) -> tuple[Any, Any]:
    """The two trained text encoders, frozen, in the precision of training."""
    weights, models = context.load("dit"), []
    for name, size in zip(("text1", "text2"), context.plan.sizes.dit_text, strict=True):
        model = build_text(size, context.vocabulary)
        model.load_state_dict(part(weights, name), strict=False)
        models.append(model.to(context.device, context.low).eval().requires_grad_(False))
    return models[0], models[1]
