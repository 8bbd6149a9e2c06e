"""What the studio's front end shows of a model: what may be chosen, how it stands, how long one
would wait for it."""

from math import sqrt
from typing import Any

from workshop_gpu.api import schemas
from workshop_gpu.client.tables import model_state
from workshop_gpu.client.words import about

_SHAPES = (
    ("Square", 1, 1),
    ("Landscape", 4, 3),
    ("Portrait", 3, 4),
    ("Wide", 16, 9),
    ("Tall", 9, 16),
)
_AT_ONCE_S = 1.5


def model_choice(model: schemas.Model) -> dict[str, Any]:
    """One entry of the model picker: what does not change while the catalogue stays."""
    return {
        "id": model.id,
        "title": model.title or model.id,
        "description": model.description,
        "defaults": model.defaults,
        "limits": model.limits,
        "accepts": list(model.accepts),
        "loras": [
            {
                "id": lora.id,
                "title": lora.title,
                "description": lora.description,
                "scale": lora.scale,
            }
            for lora in model.loras
            if not lora.problem
        ],
        "sizes": size_choices(model.defaults, model.limits),
    }


def model_standing(model: schemas.Model, left_because: str = "") -> dict[str, Any]:
    """How it stands now. `left_because`: why it is no longer on a GPU."""
    usable = model.enabled and model.state != "unavailable"
    words = model_state(model)
    if usable and model.state == "absent" and left_because:
        words = f"{words} (it left {left_because})"
    return {
        "state": model.state if model.enabled else "off",
        "words": words,
        "short": _short_state(model),
        "usable": usable,
        "wait": wait_words(model) if usable else "",
    }


def wait_words(model: schemas.Model) -> str:
    """How long one would wait who asked for it now."""
    wait_s = model.expected_wait_s
    if wait_s is None:
        return {
            "absent": "it is loaded first",
            "downloading": "it is downloaded first",
            "loading": "starts once it is loaded",
        }.get(model.state, "")
    return "starts at once" if wait_s < _AT_ONCE_S else f"starts in {about(wait_s)}"


def _short_state(model: schemas.Model) -> str:
    """A word or two; `model_state` says the rest."""
    if not model.enabled:
        return "withdrawn"
    if model.state in ("loading", "downloading") and model.total_bytes > 0:
        return f"{model.state} {100 * model.done_bytes // model.total_bytes} %"
    return {"absent": "on disk", "unavailable": "not usable", "failed": "did not load"}.get(
        model.state, model.state
    )


def size_choices(
    defaults: dict[str, int | float], limits: dict[str, int]
) -> list[tuple[str, int, int]]:
    """Name, width and height: the default, then others of about as many pixels, within limits."""
    width, height = int(defaults.get("width", 512)), int(defaults.get("height", 512))
    multiple = max(1, limits.get("size_multiple", 8))
    max_pixels = limits.get("max_pixels", width * height)
    max_side = limits.get("max_side") or max_pixels
    pixels = width * height
    choices: list[tuple[str, int, int]] = []
    for name, across, down in _SHAPES:
        unit = sqrt(pixels / (across * down))
        size = (_rounded(across * unit, multiple), _rounded(down * unit, multiple))
        if across * height == down * width:
            size = (width, height)  # the default keeps its own numbers
        fits = size[0] * size[1] <= max_pixels and max(size) <= max_side
        if fits and all(size != other[1:] for other in choices):
            choices.append((name, *size))
    if all((width, height) != other[1:] for other in choices):
        choices.insert(0, ("Default", width, height))
    return sorted(choices, key=lambda choice: choice[1:] != (width, height))


def _rounded(side: float, multiple: int) -> int:
    return max(multiple, round(side / multiple) * multiple)


def as_code(made: dict[str, Any]) -> str:
    """The line of Python that makes the same picture."""
    options = [f"{made.get('prompt', '')!r}", f"model={made.get('model', '')!r}"]
    if made.get("negative_prompt"):
        options.append(f"negative_prompt={made['negative_prompt']!r}")
    options += [f"{name}={made[name]!r}" for name in ("seed", "steps", "guidance") if name in made]
    if "width" in made and "height" in made:
        options.append(f"size=({made['width']}, {made['height']})")
    if made.get("start_image"):
        options.append('start_image="START.png"')
        options += ['mask="MASK.png"'] if made.get("mask") else []
        options += [f"strength={made['strength']!r}"] if "strength" in made else []
    if made.get("loras"):
        options.append(f"loras={made['loras']!r}")
    return f"wg.generate({', '.join(options)})"
