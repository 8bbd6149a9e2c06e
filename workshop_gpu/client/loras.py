"""LoRAs as people write them: a name, several, each with or without how strongly it counts."""

from collections.abc import Iterable, Mapping, Sequence

from workshop_gpu.api import schemas
from workshop_gpu.client.errors import BadRequest

Loras = Mapping[str, float | None] | Iterable[str | tuple[str, float]] | str | None
"""`{"ink": 0.8}`, `"ink:0.8"`, `["ink", "grain:0.5"]`, `[("ink", 0.8)]`; without a number the
LoRA's own default counts."""


def parse_loras(loras: Loras) -> dict[str, float | None]:
    """Names with their scales (None: the default). Raises BadRequest."""
    if loras is None:
        return {}
    if isinstance(loras, str):
        return _together(_pair(part) for part in loras.split(",") if part.strip())
    if isinstance(loras, Mapping):
        return _together((name, scale) for name, scale in loras.items())
    if isinstance(loras, Iterable):
        return _together(_pair(each) for each in loras)
    raise _bad(f"{loras!r:.80}: it is no LoRA. Write names with scales such as {{'ink': 0.8}}.")


def loras_text(loras: Mapping[str, float | None]) -> str:
    """As `parse_loras` reads it: "ink:0.8, grain"."""
    return ", ".join(
        name if scale is None else f"{name}:{scale:g}" for name, scale in loras.items()
    )


def with_loras(models: Sequence[schemas.Model], loras: Iterable[str]) -> list[schemas.Model]:
    """The models that all of these are for; all of them where there is none such."""
    wanted = set(loras)
    able = [model for model in models if wanted <= {lora.id for lora in model.loras}]
    return able or list(models)


def _pair(written: object) -> tuple[object, object]:
    match written:
        case str():
            name, colon, scale = written.strip().partition(":")
            return name.strip(), _number(written, scale) if colon else None
        case [name, scale]:
            return name, scale
    return written, None


def _number(written: str, scale: str) -> float:
    try:
        return float(scale)
    except ValueError:
        raise _bad(
            f'"{written:.80}": what follows the colon must be a number such as 0.8'
        ) from None


def _together(pairs: Iterable[tuple[object, object]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name, scale in pairs:
        if not isinstance(name, str) or not name:
            raise _bad(f"{name!r:.80}: it must be the name of a LoRA, in quotes.")
        if isinstance(scale, bool) or not isinstance(scale, int | float | None):
            raise _bad(f"{name}: {scale!r:.80} must be a number such as 0.8.")
        if name in found:
            raise _bad(f"{name}: it is there twice. Name it once.")
        found[name] = scale
    return found


def _bad(problem: str) -> BadRequest:
    return BadRequest("invalid_request", f"loras: {problem}", {"field": "loras"})
