"""What the crowd's models are made of, and what workers and the driver say of them."""

from tests.conductor.outside import placed_bytes
from tests.conductor.staging import GB
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, VAE, Placement, RoleBytes

SIZES = {"a": 30, "b": 30, "c": 20, "d": 45, "tiny": 1, "far": 10}
FAR = "far"
"""The model that is not on the disk at first."""
PHASES = ("load", "encode", "denoise", "decode")
"""In which a device may run out of memory."""
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


def loaded(device: str, model: str, placement: Placement, grown: float) -> events.SlotLoaded:
    """The worker has done it; the weights are so many times as large as was thought."""
    size_bytes = int(placed_bytes(fact(model), placement) * grown)
    shared = parts(model) if placement == RESIDENT else ()
    return events.SlotLoaded(device, model, size_bytes, 3.0, shared, placement, roles(model))


def honest_reading(seen: effects.Snapshot, device: str) -> events.MemoryRead:
    """The driver sees what is ours and nothing else."""
    held = [
        holder.bytes
        for view in seen.devices
        for holder in view.holders
        if view.device == device and holder.kind in ("weights", "freeing", "working")
        if " on " not in holder.name  # a worker of another device has that
    ]
    return events.MemoryRead(device, sum(held), sum(held))
