"""Adapters (LoRA, PEFT's format) that make a model draw outlines only."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, get_peft_model_state_dict
from torch import Tensor, nn

from shape_models.context import Context, part
from shape_models.data_stage import TrainingSet, latents_of, write_scenes
from shape_models.dit_stage import flow_loss, load_dit, load_texts
from shape_models.drawing import Style
from shape_models.networks import build_text, build_unet, encode_pair, encode_text
from shape_models.optimizer import FlatOptimizer, Loss, Settings
from shape_models.plan import LoraPlan
from shape_models.training import Training
from shape_models.unet_stage import velocity_loss

UNET_TARGETS = r".*(to_q|to_k|to_v|to_out\.0|ff\.net\.0\.proj|ff\.net\.2|conv1|conv2)"
DIT_TARGETS = (
    r".*(to_q|to_k|to_v|to_out\.0|add_q_proj|add_k_proj|add_v_proj|ff\.net\.0\.proj|ff\.net\.2)"
)


def train_unet_lora(context: Context) -> None:
    """Leaves `lora-unet`: the weights as `save_lora_weights` wants them."""
    vocabulary = context.vocabulary
    weights = context.load("unet")
    text = build_text(context.plan.sizes.unet_text, vocabulary)
    text.load_state_dict(part(weights, "text"), strict=False)
    text.to(context.device, context.low).eval().requires_grad_(False)
    unet = build_unet(context.plan.sizes)
    unet.load_state_dict(part(weights, "unet"))
    unet.to(memory_format=torch.channels_last)
    plan = context.plan.unet_lora
    _adapt(unet, UNET_TARGETS, plan.rank, context.plan.seed + 40)

    def text_of(tokens: Tensor, _facts: Tensor) -> tuple[Tensor, float]:
        with torch.no_grad():
            return encode_text(text, tokens, vocabulary.end).last, 0.0

    loss = velocity_loss(unet, _outlines(context, plan), plan.batch, text_of, context)
    _learn(context, "lora-unet", unet, loss, plan)


def train_dit_lora(context: Context) -> None:
    """Leaves `lora-dit`."""
    texts = load_texts(context)
    end = context.vocabulary.end
    dit = load_dit(context)
    plan = context.plan.dit_lora
    _adapt(dit, DIT_TARGETS, plan.rank, context.plan.seed + 41)

    def text_of(tokens: Tensor, _facts: Tensor) -> tuple[Any, float]:
        with torch.no_grad():
            return encode_pair(*texts, tokens, end), 0.0

    loss = flow_loss(dit, _outlines(context, plan), plan.batch, text_of, context)
    _learn(context, "lora-dit", dit, loss, plan)


def _adapt(model: Any, targets: str, rank: int, seed: int) -> None:
    """Freezes the model and adds an adapter that starts as no change."""
    torch.manual_seed(seed)
    model.requires_grad_(False)
    model.add_adapter(LoraConfig(r=rank, lora_alpha=rank, target_modules=targets))


def _outlines(context: Context, lora: LoraPlan) -> TrainingSet:
    plan = context.plan
    packed, tokens, facts = write_scenes(
        lora.scenes, plan.prompts_each, plan.seed + 42, plan.processes
    )
    return TrainingSet.of(
        latents_of(torch.from_numpy(packed), context, Style.OUTLINED),
        torch.from_numpy(tokens).to(context.device),
        torch.from_numpy(facts).to(context.device),
        context,
    )


def _learn(context: Context, name: str, model: nn.Module, loss: Loss, plan: LoraPlan) -> None:
    settings = Settings(muon=False, weight_decay=0.0, mean_decay=0.995)
    optimizer = FlatOptimizer({"model": model}, context.device, settings)
    schedule, seed = plan.schedule, context.plan.seed + 43
    Training(name, optimizer, loss, schedule, seed, context.folder, context.clock).run()
    optimizer.run_on_mean()
    trained: dict[str, Tensor] = get_peft_model_state_dict(model)
    context.save(name, {key: tensor.cpu().half() for key, tensor in trained.items()})
