"""From what people write to the request that is sent."""

import uuid

from workshop_gpu.api import schemas
from workshop_gpu.client.errors import BadRequest, ModelNotOffered, NotAccepted
from workshop_gpu.client.images import Metadata

Size = int | tuple[int, int] | str | None


def parse_size(size: Size) -> tuple[int | None, int | None]:
    """Width and height in pixels from 128, (128, 96), "128", "128x96" or None (the default).

    Raises BadRequest.
    """
    match size:
        case None:
            return None, None
        case bool():
            pass
        case int():
            return size, size
        case [int(width), int(height)]:
            return width, height
        case str():
            parts = size.lower().replace("×", "x").split("x")
            if 1 <= len(parts) <= 2 and all(part.strip().isdecimal() for part in parts):
                return int(parts[0]), int(parts[-1])
        case _:
            pass
    raise BadRequest(
        "invalid_request",
        f"size={size!r}: write a number of pixels such as 512, or width and height such as "
        '(768, 512) or "768x512".',
        {"field": "size"},
    )


def check_prompt(prompt: object, name: str = "prompt") -> str:
    """The prompt, if it is text. What it may hold is the server's to say."""
    if isinstance(prompt, str):
        return prompt
    raise BadRequest(
        "invalid_request",
        f"{name}: it must be text in quotes, not {type(prompt).__name__}.",
        {"field": name},
    )


def check_number(value: object, name: str, *, whole: bool = True, optional: bool = True) -> None:
    """Refuse here what is no number, where the reason can be said best."""
    kinds = (int,) if whole else (int, float)
    if (value is None and optional) or (isinstance(value, kinds) and not isinstance(value, bool)):
        return
    wanted = "a whole number" if whole else "a number"
    raise BadRequest("invalid_request", f"{name}={value!r}: it must be {wanted}.", {"field": name})


def pick_model(models: list[schemas.Model], needed: str = "text") -> str:
    """The model for a request that names none: one that is ready, else the first offered.

    `needed` is what it must make pictures from: "text", "image" or "mask".
    """
    offered = [model for model in models if model.enabled and model.state != "unavailable"]
    able = [model for model in offered if needed in model.accepts]
    if offered and not able:
        raise NotAccepted(
            "images_not_accepted",
            f"no model here takes {'a mask' if needed == 'mask' else 'a start image'}. Ask the "
            "instructor for one that does.",
        )
    offered = able
    for state in ("ready", "loading"):
        for model in offered:
            if model.state == state:
                return model.id
    if offered:
        return offered[0].id
    raise ModelNotOffered(
        "model_unknown", "the instructor offers no model at present. Ask them.", {}
    )


def request_again(made: Metadata, exactly: bool = True) -> schemas.GenerateRequest:
    """The request for the picture with this metadata; `exactly`: only as it was computed then.
    Raises BadRequest if it says too little."""
    if not {"prompt", "model", "seed"} <= made.keys():
        raise BadRequest(
            "invalid_request",
            "image: this picture does not say how it was made. Only pictures made here "
            "can be made again, and only as long as no other program has rewritten the file. Give "
            "another one.",
            {"field": "image"},
        )
    start_image = made.get("start_image", "")
    return schemas.GenerateRequest(
        model=made["model"],
        prompt=made["prompt"],
        negative_prompt=made.get("negative_prompt", ""),
        seed=made["seed"],
        steps=made.get("steps"),
        guidance=made.get("guidance"),
        width=made.get("width"),
        height=made.get("height"),
        batch=made.get("batch", 1),
        place=made.get("place", 0),
        manner=made.get("manner", "") if exactly else "",
        compiled=bool(made.get("compiled")) if exactly else None,
        start_image=start_image,
        mask=made.get("mask", ""),
        strength=made.get("strength") if start_image else None,
        loras=made.get("loras", {}),
        id=uuid.uuid4().hex,
    )
