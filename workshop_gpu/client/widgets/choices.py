"""What the studio's front end shows of a model: its state and what may be chosen."""

from math import sqrt
from typing import Any

from workshop_gpu.api import schemas
from workshop_gpu.client.tables import model_state

_SHAPES = (
    ("Square", 1, 1),
    ("Landscape", 4, 3),
    ("Portrait", 3, 4),
    ("Wide", 16, 9),
    ("Tall", 9, 16),
)


def model_choice(model: schemas.Model) -> dict[str, Any]:
    """One entry of the model menu."""
    usable = model.enabled and model.state != "unavailable"
    return {
        "id": model.id,
        "title": model.title or model.id,
        "description": model.description,
        "state": model.state if model.enabled else "off",
        "words": model_state(model),
        "short": _short_state(model),
        "usable": usable,
        "defaults": model.defaults,
        "max_steps": model.limits.get("max_steps", 150),
        "sizes": size_choices(model.defaults, model.limits),
    }


def _short_state(model: schemas.Model) -> str:
    """A word or two for the menu; `model_state` says the rest."""
    if not model.enabled:
        return "switched off"
    if model.state == "loading" and model.total_bytes > 0:
        return f"loading {100 * model.done_bytes // model.total_bytes} %"
    return {"absent": "on disk", "unavailable": "not usable", "failed": "not usable"}.get(
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
    return f"wg.generate({', '.join(options)})"
