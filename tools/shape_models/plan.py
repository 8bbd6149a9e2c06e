"""Every number of the recipe, for the released models and for a smoke test on a CPU."""

from __future__ import annotations

from dataclasses import dataclass

from shape_models.networks import Sizes, TextSize
from shape_models.training import Schedule


@dataclass(frozen=True)
class VaePlan:
    """Pools of pictures to learn from, first small ones full of shapes, then whole scenes."""

    small: Schedule
    large: Schedule
    small_pool: int
    large_pool: int
    small_batch: int = 64
    large_batch: int = 32
    divergence: float = 2e-5


@dataclass(frozen=True)
class DiffusionPlan:
    """One denoiser's training."""

    schedule: Schedule
    batch: int
    compiled: bool = False
    facts_weight: float = 0.05


@dataclass(frozen=True)
class LoraPlan:
    """An adapter that draws outlines only."""

    schedule: Schedule
    batch: int
    scenes: int
    rank: int


@dataclass(frozen=True)
class Plan:
    """The whole recipe."""

    sizes: Sizes
    seed: int
    scenes: int
    prompts_each: int
    processes: int
    vae: VaePlan
    unet: DiffusionPlan
    dit: DiffusionPlan
    unet_lora: LoraPlan
    dit_lora: LoraPlan
    turbo_levels: int = 4


RELEASE = Plan(
    sizes=Sizes(),
    seed=2026,
    scenes=262_144,
    prompts_each=3,
    processes=14,
    vae=VaePlan(
        small=Schedule(7_000, 1e-3, hold=0.5, floor=0.3),
        large=Schedule(3_500, 4e-4, hold=0.2),
        small_pool=131_072,
        large_pool=32_768,
    ),
    unet=DiffusionPlan(Schedule(15_000, 1.3e-3), batch=256),
    dit=DiffusionPlan(Schedule(16_000, 1.5e-3), batch=256, compiled=True),
    unet_lora=LoraPlan(Schedule(650, 2e-3), batch=16, scenes=2_048, rank=8),
    dit_lora=LoraPlan(Schedule(360, 2e-3), batch=8, scenes=1_024, rank=4),
)

SMOKE = Plan(
    sizes=Sizes(
        vae_channels=(8, 8, 8, 8),
        unet_channels=(16, 16),
        unet_text=TextSize(32, 2, 2),
        dit_layers=2,
        dit_heads=2,
        dit_head_width=16,
        dit_text=(TextSize(16, 2, 2), TextSize(16, 2, 2)),
    ),
    seed=7,
    scenes=16,
    prompts_each=2,
    processes=1,
    vae=VaePlan(
        small=Schedule(3, 1e-3),
        large=Schedule(2, 4e-4),
        small_pool=16,
        large_pool=8,
        small_batch=4,
        large_batch=2,
    ),
    unet=DiffusionPlan(Schedule(4, 1e-3), batch=4),
    dit=DiffusionPlan(Schedule(4, 1e-3), batch=4),
    unet_lora=LoraPlan(Schedule(2, 1e-3), batch=4, scenes=8, rank=2),
    dit_lora=LoraPlan(Schedule(2, 1e-3), batch=4, scenes=8, rank=2),
)
