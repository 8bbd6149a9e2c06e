"""What the crowd's models are made of."""

from tests.conductor.staging import GB
from workshop_gpu.conductor import events
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, VAE, RoleBytes

SIZES = {"a": 30, "b": 30, "c": 20, "d": 45, "tiny": 1, "far": 10}
FAR = "far"
"""The model that is not on the disk at first."""
LADDERED = ("b", "d")
"""Models that may be placed otherwise than as a whole."""


def fact(name: str, **more: object) -> events.ModelFacts:
    more.setdefault("roles", roles(name))
    return events.ModelFacts(name, file_bytes=SIZES[name] * GB, **more)  # type: ignore[arg-type]


def roles(name: str) -> tuple[RoleBytes, ...]:
    """What the model's parts take: encoders and denoiser in ten blocks each."""
    if name not in LADDERED:
        return ()
    tenth = SIZES[name] * GB // 10
    return (
        RoleBytes(ENCODERS, 4 * tenth, (4 * tenth // 10,) * 10),
        RoleBytes(DENOISER, 5 * tenth, (5 * tenth // 10,) * 10),
        RoleBytes(VAE, tenth),
    )


def parts(model: str) -> tuple[events.PartBytes, ...]:
    """Models a and b have their encoder in common."""
    if model not in ("a", "b"):
        return ()
    return (
        events.PartBytes("encoder", 10 * GB),
        events.PartBytes(f"rest of {model}", (SIZES[model] - 10) * GB),
    )
