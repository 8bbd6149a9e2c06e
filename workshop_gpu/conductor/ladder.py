"""The rungs of the ladder by their names, from best to slowest.

Instructors name them in models.toml and for single jobs; the planner (see `planner.py`) tries them
all. The modes that people know from other programs are names for the same things.
"""

from collections.abc import Iterable
from functools import lru_cache

from workshop_gpu.conductor.combining import (
    ALL_STREAMED,
    STREAMED,
    combination_of,
    combined,
    read_name,
)
from workshop_gpu.conductor.rungs import (
    DENOISER,
    ENCODERS,
    RESIDENT,
    ROLES,
    VAE,
    Placement,
    Rung,
    Streams,
)

AUTO = "auto"


_BOTH = (ENCODERS, VAE)

RUNGS: tuple[Rung, ...] = (
    Rung("resident", "everything on the GPU"),
    Rung(
        "swap-encoders",
        "text encoders on another GPU",
        Placement(elsewhere=(ENCODERS,)),
        swaps=True,
    ),
    Rung(
        "swap-streamed",
        "text encoders and VAE staged, the denoiser partly streamed from another GPU",
        Placement(staged=_BOTH),
        Streams.SOME,
        swaps=True,
    ),
    Rung(
        "swap-both",
        "text encoders on another GPU, VAE staged, the denoiser partly streamed from there",
        Placement(staged=(VAE,), elsewhere=(ENCODERS,)),
        Streams.SOME,
        swaps=True,
    ),
    Rung("streamed", "the denoiser partly streamed", RESIDENT, Streams.SOME),
    Rung("staged-encoders", "text encoders staged", Placement(staged=(ENCODERS,))),
    Rung("staged", "text encoders and VAE staged", Placement(staged=_BOTH)),
    Rung(
        "staged-streamed",
        "text encoders and VAE staged, the denoiser partly streamed",
        Placement(staged=_BOTH),
        Streams.SOME,
    ),
    Rung("staged-all", "every component staged", Placement(staged=ROLES)),
    Rung(
        "all-streamed",
        "text encoders and VAE staged, the denoiser streamed as a whole",
        Placement(staged=_BOTH),
        Streams.ALL,
    ),
    Rung(
        "streamed-both",
        "text encoders streamed, VAE staged, the denoiser partly streamed",
        Placement(staged=(VAE,), streamed=(ENCODERS,)),
        Streams.SOME,
    ),
    Rung("tiled", "VAE tiling", Placement(tiled=True)),
    Rung(
        "tiled-streamed",
        "text encoders and VAE staged, VAE tiling, the denoiser streamed",
        Placement(staged=_BOTH, tiled=True),
        Streams.SOME,
    ),
    Rung(
        "tiled-streamed-both",
        "text encoders streamed, VAE staged, VAE tiling, the denoiser streamed",
        Placement(staged=(VAE,), tiled=True, streamed=(ENCODERS,)),
        Streams.SOME,
    ),
    Rung(
        "cpu-encoders",
        "text encoders on the CPU, the rest on the GPU",
        Placement(on_cpu=(ENCODERS,)),
    ),
    Rung(
        "cpu-encoders-streamed",
        "text encoders on the CPU, VAE tiling, the denoiser streamed",
        Placement(staged=(VAE,), on_cpu=(ENCODERS,), tiled=True),
        Streams.SOME,
    ),
    Rung(
        "sliced",
        "attention slicing, text encoders on the CPU, VAE tiling, the denoiser streamed",
        Placement(staged=(VAE,), on_cpu=(ENCODERS,), tiled=True, sliced=True),
        Streams.SOME,
    ),
    Rung("staged-vae", "VAE staged", Placement(staged=(VAE,)), by_name_only=True),
    Rung(
        "resident-sliced",
        "attention slicing, everything on the GPU",
        Placement(sliced=True),
        by_name_only=True,
    ),
    Rung(
        "streamed-encoders",
        "text encoders streamed, VAE staged",
        Placement(staged=(VAE,), streamed=(ENCODERS,)),
        by_name_only=True,  # the denoiser's blocks come through the same buffers for nothing
    ),
    Rung(
        "cond_diffusion",
        "text encoders and denoiser staged",
        Placement(staged=(ENCODERS, DENOISER)),
        by_name_only=True,
    ),
)

MODES = {
    "none": "resident",
    "cond_only": "staged-encoders",
    "aggressive": "staged-all",
    "layer_streaming": "all-streamed",
}
"""Names from other programs."""

_BY_NAME = {rung.name: rung for rung in RUNGS}
SWAPPING = tuple(rung for rung in RUNGS if not rung.by_name_only)
"""What the planner tries for a model with a swap device."""
PLANNED = tuple(rung for rung in SWAPPING if not rung.swaps)
"""What it tries for all others."""


def rung_named(name: str) -> Rung | None:
    """The rung of this name or mode, or that of a combination (see `combining.py`); None where
    there is none."""
    return _BY_NAME.get(MODES.get(name, name)) or _combination_named(name)


@lru_cache(maxsize=256)
def _combination_named(name: str) -> Rung | None:
    """A combination that is the same as a rung of the ladder is that rung."""
    combination = read_name(name)
    if combination is None:
        return None
    rung = combined(combination)
    same = (each for each in RUNGS if _is_same(each, rung))
    return next(same, rung)


def _is_same(one: Rung, other: Rung) -> bool:
    return (one.placement, one.streams, one.swaps) == (
        other.placement,
        other.streams,
        other.swaps,
    )


def is_placement(name: str) -> bool:
    """Whether this may be said of how a model is placed: "auto", or the name of a rung."""
    return name == AUTO or rung_named(name) is not None


def names() -> tuple[str, ...]:
    """All names that may be given, "auto" first."""
    return (AUTO, *_BY_NAME, *MODES)


def names_for_any_model() -> tuple[str, ...]:
    """Those that may be given for all models alike: memory of another GPU is for models only whose
    settings name that GPU."""
    return tuple(name for name in names() if not takes_another_gpu(name))


def takes_another_gpu(name: str) -> bool:
    """Whether the rung of this name takes memory of another GPU."""
    rung = rung_named(name)
    return rung is not None and rung.swaps


def streams_nothing(name: str) -> bool:
    """Whether the rung of this name streams nothing of the denoiser; "auto" is none."""
    rung = rung_named(name)
    return rung is not None and rung.streams is Streams.NOTHING


def needs_no_buffers(name: str) -> bool:
    """Whether nothing of the rung of this name comes through buffers; of "auto" something may."""
    rung = rung_named(name)
    return rung is not None and not rung.streamed_roles


def makes_no_use_of(name: str, given: Iterable[str]) -> list[str]:
    """Those of the memory settings that were given, by their names in models.toml, which are of no
    effect with the rung of this name; "auto" makes use of all."""
    unused = {
        "swap_space_gb": needs_no_buffers(name),
        "prefetch": needs_no_buffers(name),
        "swap_device": rung_named(name) is not None and not takes_another_gpu(name),
    }
    return [each for each in given if unused[each]]


@lru_cache(maxsize=256)
def rung_of(placement: Placement) -> Rung | None:
    """The ladder's own rung that a placement stands on; None for one that was put together by
    hand."""
    return next((rung for rung in RUNGS if stands_on(placement, rung)), None)


def stands_on(placement: Placement, rung: Rung) -> bool:
    """Whether the rung places everything so, however much of the denoiser it streams."""
    want = rung.placement
    alike = _roles_in(want) == _roles_in(placement) and (
        (want.tiled, want.sliced, rung.swaps)
        == (placement.tiled, placement.sliced, bool(placement.source))
    )
    return alike and (rung.streams is Streams.NOTHING) == (placement.streamed_bytes == 0)


def _roles_in(placement: Placement) -> tuple[tuple[str, ...], ...]:
    return placement.staged, placement.streamed, placement.on_cpu, placement.elsewhere


def standing_of(placement: Placement) -> Rung | None:
    """The same, or the combination that it is."""
    return rung_of(placement) or combination_of(placement)


def tried_with(rung: Rung) -> Rung:
    """Where all of the denoiser is streamed, two rungs that differ only in how much of it they
    stream place everything alike: this is the one that stands for both."""
    whole = (each for each in RUNGS if each.streams is Streams.ALL)
    same = next((each for each in whole if each.placement == rung.placement), None)
    return same or rung_named(rung.name.replace(f"={ALL_STREAMED}", f"={STREAMED}")) or rung
