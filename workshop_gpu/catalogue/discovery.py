"""Models that nobody wrote down: diffusers pipelines that lie in the Hugging Face cache."""

import re
from collections.abc import Iterable
from pathlib import Path

from workshop_gpu.catalogue import hub_cache
from workshop_gpu.catalogue.pipeline_folder import Incomplete, Refused, components, pipeline_class
from workshop_gpu.catalogue.spec import Defaults, Limits, ModelSpec, Source

_BY_CLASS = {
    "StableDiffusionPipeline": Defaults(30, 7.5, 512, 512),
    "StableDiffusionXLPipeline": Defaults(30, 5.0, 1024, 1024),
    "StableDiffusion3Pipeline": Defaults(28, 4.5, 1024, 1024),
    "FluxPipeline": Defaults(28, 3.5, 1024, 1024),
    "Flux2Pipeline": Defaults(28, 4.0, 1024, 1024),
    "Flux2KleinPipeline": Defaults(4, 1.0, 1024, 1024),
    "PixArtAlphaPipeline": Defaults(20, 4.5, 1024, 1024),
    "PixArtSigmaPipeline": Defaults(20, 4.5, 1024, 1024),
    "SanaPipeline": Defaults(20, 4.5, 1024, 1024),
    "LuminaPipeline": Defaults(30, 4.0, 1024, 1024),
    "AuraFlowPipeline": Defaults(30, 3.5, 1024, 1024),
    "QwenImagePipeline": Defaults(30, 4.0, 1024, 1024),
    "ZImagePipeline": Defaults(9, 0.0, 1024, 1024),
    "KolorsPipeline": Defaults(30, 5.0, 1024, 1024),
    "LatentConsistencyModelPipeline": Defaults(4, 8.5, 512, 512),
}
"""Pipelines that make a picture from text, with the values of their own documentation pages."""

_FEW_STEPS = re.compile(r"turbo|lightning|schnell|hyper|lcm|dmd|flash", re.IGNORECASE)
_SIZE_MULTIPLES = {"StableDiffusionPipeline": 8, "StableDiffusionXLPipeline": 8}
_BIG_SIZE_MULTIPLE = 16
_VARIANTS = ("", "fp16", "bf16")


def discovered_specs(cache: Path, taken: Iterable[str] = ()) -> tuple[ModelSpec, ...]:
    """Every whole pipeline of the cache that makes a picture from text and has safetensors.

    `taken` are ids that are in use already; a model whose short name is taken gets its long one.
    """
    ids = set(taken)
    found: list[ModelSpec] = []
    for hub_id, folder in hub_cache.snapshots(cache):
        try:
            class_name = pipeline_class(folder)
            defaults = _BY_CLASS.get(class_name)
            variant = None if defaults is None else _whole_variant(folder)
        except (Refused, Incomplete, OSError):
            continue
        if defaults is None or variant is None:
            continue
        model_id = _free_id(hub_id, ids)
        ids.add(model_id)
        found.append(
            ModelSpec(
                id=model_id,
                title=hub_id.split("/")[1].replace("-", " "),
                description=f"{hub_id}, found in the Hugging Face cache",
                source=Source(hub=hub_id, revision=_revision(folder), variant=variant),
                defaults=_fitting(defaults, hub_id),
                limits=Limits(size_multiple=_SIZE_MULTIPLES.get(class_name, _BIG_SIZE_MULTIPLE)),
            )
        )
    return tuple(found)


def _fitting(defaults: Defaults, hub_id: str) -> Defaults:
    """Distilled models say so in their name: a few steps, and no guidance."""
    if not _FEW_STEPS.search(hub_id) or defaults.steps <= 10:
        return defaults
    side = 512 if "sdxl-turbo" in hub_id.lower() else defaults.width
    return Defaults(4, 0.0, side, side)


def _whole_variant(folder: Path) -> str | None:
    for variant in _VARIANTS:
        try:
            components(folder, variant, 2)
        except Incomplete:
            continue
        return variant
    return None


def _revision(folder: Path) -> str:
    """Empty for the main revision, else the commit that the folder is of."""
    main = folder.parent.parent / "refs" / "main"
    return "" if main.is_file() and main.read_text().strip() == folder.name else folder.name


def _free_id(hub_id: str, taken: set[str]) -> str:
    organisation, name = hub_id.split("/")
    return name if name not in taken else f"{organisation}-{name}"
