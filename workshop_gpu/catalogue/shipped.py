"""The models that come with the package: small, trained by this project, drawing coloured shapes.

They need no download, fit into a few MB and run on a CPU in about a second, so that everything
can be tried and tested anywhere. Three kinds: a UNet with one CLIP text encoder ("shapes"),
a diffusion transformer with three text encoders ("shapes-dit"), and its four-step version.
"""

from pathlib import Path

import msgspec

from workshop_gpu.catalogue.spec import Defaults, Limits, ModelSpec, Source

ASSETS = Path(__file__).parent / "assets"

_LIMITS = Limits(max_pixels=256 * 256, max_side=256, max_steps=100, max_images=8, size_multiple=16)
"""Trained at 128 x 128 only."""
_DIT_LIMITS = msgspec.structs.replace(_LIMITS, max_pixels=128 * 128, max_side=128)
"""The transformer's position table ends at 16 x 16 cells of 8 pixels."""

_WORDS = (
    "Circles, squares, triangles, stars, hearts, hexagons, crosses and rings in ten colours: "
    '"a big yellow star left of a small red ring on a black background".'
)


def shipped_specs() -> tuple[ModelSpec, ...]:
    """The shipped models, in the order in which they are offered."""
    return (
        _spec("shapes", "Shapes", f"A small UNet. {_WORDS}", 20, 3.0, _LIMITS),
        _spec(
            "shapes-dit",
            "Shapes DiT",
            f"A small diffusion transformer. {_WORDS}",
            20,
            3.0,
            _DIT_LIMITS,
        ),
        _spec(
            "shapes-dit-turbo",
            "Shapes DiT Turbo",
            f"Four steps instead of twenty, and no guidance. {_WORDS}",
            4,
            1.0,
            _DIT_LIMITS,
        ),
    )


def _spec(
    model_id: str, title: str, description: str, steps: int, guidance: float, limits: Limits
) -> ModelSpec:
    return ModelSpec(
        id=model_id,
        title=title,
        description=description,
        source=Source(folder=str(ASSETS / model_id)),
        defaults=Defaults(steps=steps, guidance=guidance, width=128, height=128),
        limits=limits,
    )
