"""A request to generate, checked against the model's limits and completed with its defaults."""

import math
import secrets
from typing import TypeVar

from workshop_gpu.api.schemas import GenerateRequest
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.conductor.errors import InvalidRequest
from workshop_gpu.worker.protocol import GenerateParams

Value = TypeVar("Value")

MAX_PROMPT_CHARACTERS = 5000
MAX_SEED = 2**63 - 1
"""The largest seed that a generator takes; image i of a job uses seed + i."""
_DRAWN_SEEDS = 2**32
MAX_GUIDANCE = 100.0
MAX_BATCH = 16
"""The largest batch that a picture may be repeated in; no server draws larger ones."""


def complete(request: GenerateRequest, spec: ModelSpec) -> GenerateParams:
    """The parameters to draw with. Raises InvalidRequest with the field and the limit."""
    limits, defaults = spec.limits, spec.defaults
    _check_prompt("prompt", request.prompt)
    if not request.prompt.strip():
        raise InvalidRequest("prompt", "say what to draw; the prompt is empty")
    _check_prompt("negative_prompt", request.negative_prompt)
    images = _within("images", request.images, 1, limits.max_images)
    steps = _within("steps", _or(request.steps, defaults.steps), 1, limits.max_steps)
    width = _side("width", _or(request.width, defaults.width), spec)
    height = _side("height", _or(request.height, defaults.height), spec)
    if width * height > limits.max_pixels:
        raise InvalidRequest(
            "width",
            f"{width} x {height} are {width * height} pixels; "
            f"{spec.id} draws at most {limits.max_pixels}",
            pixels=width * height,
            max_pixels=limits.max_pixels,
        )
    guidance = float(_or(request.guidance, defaults.guidance))
    if not (math.isfinite(guidance) and 0 <= guidance <= MAX_GUIDANCE):
        raise InvalidRequest("guidance", f"{guidance} is not between 0 and {MAX_GUIDANCE:.0f}")
    if request.seed is None:
        seed = secrets.randbelow(_DRAWN_SEEDS)
    else:
        seed = _within("seed", request.seed, 0, MAX_SEED - limits.max_images)
    batch = _within("batch", request.batch, 1, MAX_BATCH)
    return GenerateParams(
        prompt=request.prompt,
        negative_prompt=request.negative_prompt,
        seed=seed,
        steps=steps,
        guidance=guidance,
        width=width,
        height=height,
        images=images,
        batch=batch,
        place=_within("place", request.place, 0, batch - 1),
    )


def _or(asked: Value | None, default: Value) -> Value:
    return default if asked is None else asked


def _check_prompt(field: str, text: str) -> None:
    if len(text) > MAX_PROMPT_CHARACTERS:
        raise InvalidRequest(
            field,
            f"{len(text)} characters are too many; at most {MAX_PROMPT_CHARACTERS} are read",
            characters=len(text),
            max_characters=MAX_PROMPT_CHARACTERS,
        )


def _within(field: str, value: int, lowest: int, highest: int) -> int:
    if not lowest <= value <= highest:
        raise InvalidRequest(
            field, f"{value} is not between {lowest} and {highest}", minimum=lowest, maximum=highest
        )
    return value


def _side(field: str, value: int, spec: ModelSpec) -> int:
    multiple, longest = spec.limits.size_multiple, spec.limits.max_side
    if value < multiple or value > longest or value % multiple:
        raise InvalidRequest(
            field,
            f"{value} is not a multiple of {multiple} between {multiple} and {longest}",
            multiple=multiple,
            maximum=longest,
        )
    return value
