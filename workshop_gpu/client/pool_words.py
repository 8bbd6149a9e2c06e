"""The weight pool in words: how full it is, and what is in it for which models."""

from collections import Counter

from workshop_gpu.api import schemas
from workshop_gpu.client.words import amount

_MOST = 12
"""So many lines, the largest parts; the others are one line together."""


def pool_line(pool: schemas.Pool) -> str:
    """How full it is, or why there is none."""
    if not pool.budget_bytes:
        return f"No weight pool: {pool.problem}" if pool.problem else ""
    return f"Weight pool: {amount(pool.used_bytes)} of {amount(pool.budget_bytes)}"


def pool_parts(pool: schemas.Pool) -> list[tuple[str, int]]:
    """What is in it, the largest first, with its bytes: "sdxl", "shared by a, b", "LoRA ink of
    sdxl". Parts that no worker uses, which leave when room is needed, are told apart."""
    sizes: Counter[str] = Counter()
    for part in pool.parts:
        sizes[_words(part)] += part.size_bytes
    largest = sizes.most_common()
    rest = largest[_MOST:]
    if len(rest) > 1:
        others = (f"{len(rest)} others", sum(size_bytes for _, size_bytes in rest))
        return [*largest[:_MOST], others]
    return largest


def _words(part: schemas.PoolPart) -> str:
    models = ", ".join(part.models)
    if part.lora:
        whose = f"LoRA {part.lora} of {models}" if models else f"LoRA {part.lora}"
    elif len(part.models) > 1:
        whose = f"shared by {models}"
    else:
        whose = models or "of no model"
    return whose if part.workers else f"{whose} (not in use)"
