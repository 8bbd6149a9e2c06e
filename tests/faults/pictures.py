"""The pictures that the campaign's people ask for, and how they must look."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]

_OTHER_BATCH_LEVELS = 3
"""Drawn beside others a picture may differ by rounding: so many of 255 levels at most."""


@dataclass(frozen=True)
class Wish:
    """A request that can be made again and again."""

    model: str
    prompt: str
    seed: int
    steps: int
    images: int = 1

    def body(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": self.prompt,
            "seed": self.seed,
            "steps": self.steps,
            "images": self.images,
        }


WISHES = (
    Wish("shapes", "a red circle on a blue background", 1, 3),
    Wish("shapes", "a green ring on a white background", 2, 8, images=2),
    Wish("shapes-dit", "a big yellow star on a black background", 3, 4),
    Wish("shapes-dit", "a small red heart on a white background", 4, 12),
    Wish("shapes-dit-turbo", "a blue square on a pink background", 5, 4),
    Wish("shapes-dit-turbo", "a red cross on a green background", 6, 2, images=3),
)
"""Several models, short and long, one picture and several."""


def pixels(png: bytes) -> Pixels:
    """Raises OSError or SyntaxError where the file does not open."""
    with Image.open(io.BytesIO(png)) as image:
        image.load()
        return np.asarray(image.convert("RGB")).copy()


def alike(one: Pixels, other: Pixels, *, exactly: bool) -> bool:
    """Whether it is the same picture."""
    if one.shape != other.shape:
        return False
    worst = int(np.abs(one.astype(int) - other.astype(int)).max())
    return worst <= (0 if exactly else _OTHER_BATCH_LEVELS)


def drawn(wish: Wish, job: dict[str, Any], fetch: Callable[[str], bytes]) -> list[Pixels]:
    """The pictures of a finished job. Raises ValueError where they are not what was asked for."""
    if len(job["images"]) != wish.images:
        raise ValueError(f"{len(job['images'])} pictures instead of {wish.images}")
    return [pixels(fetch(f"api/jobs/{job['id']}/images/{n}")) for n in range(wish.images)]
