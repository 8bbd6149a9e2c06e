"""A request to generate, checked against the model's limits and completed with its defaults."""

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from workshop_gpu.api.schemas import MAX_PROMPT_CHARACTERS, GenerateRequest, Input
from workshop_gpu.catalogue.loras import MOST_SCALE, OfferedLora
from workshop_gpu.catalogue.sizes import nearest
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.conductor.errors import ImagesNotAccepted, InvalidRequest
from workshop_gpu.conductor.lora_errors import LoraUnknown, LoraUnusable
from workshop_gpu.conductor.rungs import EXACT, MANNERS, is_manner
from workshop_gpu.worker.protocol import GenerateParams

Value = TypeVar("Value")

MAX_SEED = 2**63 - 1
"""The largest seed that a generator takes; image i of a job uses seed + i."""
_DRAWN_SEEDS = 2**32
MAX_GUIDANCE = 100.0
MAX_BATCH = 16
"""The largest batch that a picture may be repeated in; no server draws larger ones."""
MOST_LORAS = 4
"""Of one picture."""
IMAGE_STRENGTH = 0.7
MASK_STRENGTH = 1.0
"""How much is drawn anew where nobody says: with a start image, and under a mask."""


class Beginning(msgspec.Struct, frozen=True):
    """What a job begins with."""

    start_image: Input | None = None
    mask: Input | None = None


NOTHING = Beginning()


def complete(
    request: GenerateRequest,
    spec: ModelSpec,
    beginning: Beginning = NOTHING,
    accepts: Sequence[str] = ("text",),
    loras: Sequence[OfferedLora] = (),
) -> GenerateParams:
    """The parameters to draw with; `accepts` is what the model makes pictures from, `loras` are
    those that fit it.

    Raises InvalidRequest with the field and the limit, ImagesNotAccepted, LoraUnknown or
    LoraUnusable.
    """
    limits, defaults = spec.limits, spec.defaults
    _check_prompt("prompt", request.prompt)
    if not request.prompt.strip():
        raise InvalidRequest("prompt", "say what to draw; the prompt is empty")
    _check_prompt("negative_prompt", request.negative_prompt)
    images = _within("images", request.images, 1, limits.max_images)
    steps = _within("steps", _or(request.steps, defaults.steps), 1, limits.max_steps)
    usual = _usual_size(spec, beginning.start_image)
    width = _side("width", _or(request.width, usual[0]), spec)
    height = _side("height", _or(request.height, usual[1]), spec)
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
    if request.manner and not is_manner(request.manner):
        known = ", ".join((EXACT, *MANNERS))
        raise InvalidRequest(
            "manner", f'"{request.manner[:80]}" is none of {known}, nor some of them joined by +'
        )
    params = GenerateParams(
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
        manner=request.manner,
        loras=_scaled(request.loras, spec.id, loras),
        compiled=request.compiled,
        profile=request.profile,
    )
    return _begun(params, request.strength, spec.id, beginning, accepts)


def _begun(
    params: GenerateParams,
    strength: float | None,
    model: str,
    beginning: Beginning,
    accepts: Sequence[str],
) -> GenerateParams:
    """With what the job begins with, if with anything."""
    start, mask = beginning.start_image, beginning.mask
    if start is None:
        for field, given in (("mask", mask is not None), ("strength", strength is not None)):
            if given:
                raise InvalidRequest(field, "it goes with a start image only; give start_image too")
        return params
    if "image" not in accepts:
        raise ImagesNotAccepted(model, "start images")
    if params.batch > 1:
        raise InvalidRequest(
            "batch", "a picture with a start image is always drawn alone; leave it out"
        )
    if mask is not None:
        if "mask" not in accepts:
            raise ImagesNotAccepted(model, "masks")
        if (mask.width, mask.height) != (start.width, start.height):
            raise InvalidRequest(
                "mask",
                f"it has {mask.width} x {mask.height} pixels and the start image "
                f"{start.width} x {start.height}; make both equally large",
            )
    return msgspec.structs.replace(
        params,
        start_image=start.id,
        mask=mask.id if mask else "",
        strength=_strength(strength, params.steps, MASK_STRENGTH if mask else IMAGE_STRENGTH),
    )


def _scaled(
    asked: Mapping[str, float | None], model: str, loras: Sequence[OfferedLora]
) -> dict[str, float]:
    """The LoRAs with their scales, in an order that is the same for all who ask for the same."""
    if len(asked) > MOST_LORAS:
        raise InvalidRequest(
            "loras", f"{len(asked)} are too many; at most {MOST_LORAS} go together", most=MOST_LORAS
        )
    fitting = {lora.id: lora for lora in loras}
    found = {}
    for name in sorted(asked):
        if name not in fitting:
            raise LoraUnknown(name[:100], model, list(fitting))
        if fitting[name].problem:
            raise LoraUnusable(name, model, fitting[name].problem.rstrip("."))
        scale = float(_or(asked[name], fitting[name].spec.scale))
        if not (math.isfinite(scale) and abs(scale) <= MOST_SCALE):
            raise InvalidRequest(
                "loras", f"{scale} for {name} is not between {-MOST_SCALE:g} and {MOST_SCALE:g}"
            )
        found[name] = scale
    return found


def _strength(asked: float | None, steps: int, usual: float) -> float:
    strength = max(usual, 1 / steps) if asked is None else float(asked)
    if not (math.isfinite(strength) and 0 < strength <= 1):
        raise InvalidRequest(
            "strength", f"{strength} is not above 0 and at most 1 (1 draws all of it anew)"
        )
    if steps * strength < 1:
        raise InvalidRequest(
            "strength",
            f"{strength} of {steps} steps is less than one step; take at least "
            f"{math.ceil(100 / steps) / 100:g}, or more steps",
        )
    return strength


def _usual_size(spec: ModelSpec, start: Input | None) -> tuple[int, int]:
    """The model's default, or the size nearest to the start image's that the model draws."""
    if start is None:
        return spec.defaults.width, spec.defaults.height
    return nearest(spec.limits, start.width, start.height)


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
    if value > longest:
        raise InvalidRequest(
            field,
            f"{value} pixels are too many; {spec.id} draws at most {longest} a side. Ask for a "
            f"multiple of {multiple} between {multiple} and {longest}",
            pixels=value,
            multiple=multiple,
            maximum=longest,
        )
    if value < multiple or value % multiple:
        raise InvalidRequest(
            field,
            f"{value} is not a multiple of {multiple} between {multiple} and {longest}",
            multiple=multiple,
            maximum=longest,
        )
    return value
