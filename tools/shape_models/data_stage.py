"""The training set: scenes, their prompts, and their latents, computed once."""

from __future__ import annotations

import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from shape_models.context import Context, part
from shape_models.drawing import Style, draw_packed
from shape_models.networks import LATENT_SCALE, build_vae
from shape_models.prompts import FACTS, write_prompt
from shape_models.scenes import Scene, draw_scene, pack
from shape_models.tokenizer import LENGTH, Vocabulary, learn_vocabulary
from shape_models.words import all_words

CHUNK = 2048
"""Scenes are drawn in chunks with a seed each, so that the set does not depend on processes."""

_Arrays = tuple[npt.NDArray[np.float32], npt.NDArray[np.int16], npt.NDArray[np.int8]]


def make_scenes(count: int, seed: int) -> list[Scene]:
    """`count` scenes from one seed."""
    rng = random.Random(seed)
    return [draw_scene(rng) for _ in range(count)]


def write_chunk(count: int, prompts_each: int, seed: int) -> _Arrays:
    """Packed scenes [n, 11], tokens [n, prompts, 32], facts [n, prompts, 10]."""
    rng = random.Random(seed)
    vocabulary: Vocabulary = learn_vocabulary(all_words())
    scenes = [draw_scene(rng) for _ in range(count)]
    tokens = np.zeros((count, prompts_each, LENGTH), np.int16)
    facts = np.zeros((count, prompts_each, len(FACTS)), np.int8)
    for i, scene in enumerate(scenes):
        for k in range(prompts_each):
            prompt, facts[i, k] = write_prompt(rng, scene)
            tokens[i, k] = vocabulary.encode(prompt)
    return pack(scenes), tokens, facts


def write_scenes(count: int, prompts_each: int, seed: int, processes: int) -> _Arrays:
    """The same as `write_chunk`, spread over processes."""
    counts = [min(CHUNK, count - start) for start in range(0, count, CHUNK)]
    each = [prompts_each] * len(counts)
    seeds = [seed * 7919 + k for k in range(len(counts))]
    if processes == 1:
        parts = list(map(write_chunk, counts, each, seeds))
    else:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
            parts = list(pool.map(write_chunk, counts, each, seeds))
    scenes, tokens, facts = zip(*parts, strict=True)
    return np.concatenate(scenes), np.concatenate(tokens), np.concatenate(facts)


def make_data(context: Context) -> None:
    """Leaves `data`: latents [n, 16, 16, 16], tokens and facts of every prompt."""
    plan = context.plan
    packed, tokens, facts = write_scenes(
        plan.scenes, plan.prompts_each, plan.seed + 3, plan.processes
    )
    context.say(f"{len(packed)} scenes and {len(packed) * plan.prompts_each} prompts written")
    context.save(
        "data",
        {
            "latents": latents_of(torch.from_numpy(packed), context, Style.FILLED).cpu(),
            "tokens": torch.from_numpy(tokens),
            "facts": torch.from_numpy(facts),
        },
    )


@torch.no_grad()
def latents_of(packed: Tensor, context: Context, style: Style) -> Tensor:
    """Latents of packed scenes, scaled to variance 1, in the precision of training."""
    vae = build_vae(context.plan.sizes)
    vae.load_state_dict(part(context.load("vae"), "vae"))
    vae.to(context.device, context.low).eval()
    latents = []
    for start in range(0, len(packed), 512):
        pictures = draw_packed(packed[start : start + 512].to(context.device), style)
        moments = vae.quant_conv(vae.encoder(pictures.to(context.low)))
        latents.append((moments.float().chunk(2, 1)[0] * LATENT_SCALE).to(context.low))
    return torch.cat(latents)


@dataclass(frozen=True)
class TrainingSet:
    """Latents [n, C, H, W], tokens [n, prompts, 32] and facts [n, prompts, 10] on the device."""

    latents: Tensor
    tokens: Tensor
    facts: Tensor
    empty: Tensor

    @staticmethod
    def load(context: Context) -> TrainingSet:
        data = {name: t.to(context.device) for name, t in context.load("data").items()}
        return TrainingSet.of(data["latents"], data["tokens"], data["facts"], context)

    @staticmethod
    def of(latents: Tensor, tokens: Tensor, facts: Tensor, context: Context) -> TrainingSet:
        """A training set with the empty prompt added."""
        vocabulary = context.vocabulary
        empty = torch.full((LENGTH,), vocabulary.end)
        empty[0] = vocabulary.begin
        return TrainingSet(latents, tokens, facts, empty.to(context.device))

    def batch(self, size: int, unprompted: float = 0.1) -> tuple[Tensor, Tensor, Tensor]:
        """Random latents in 32 bits, tokens and facts; a tenth has the empty prompt."""
        device = self.latents.device
        i = torch.randint(0, len(self.latents), (size,), device=device)
        k = torch.randint(0, self.tokens.shape[1], (size,), device=device)
        tokens, facts = self.tokens[i, k].long(), self.facts[i, k].long()
        bare = (torch.rand(size, device=device) < unprompted)[:, None]
        tokens = torch.where(bare, self.empty, tokens)
        facts = torch.where(bare, torch.zeros_like(facts), facts)
        return self.latents[i].float(), tokens, facts
