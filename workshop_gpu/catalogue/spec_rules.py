"""What a model's entry must fulfil beyond the types of its fields."""

import math
import re
from collections.abc import Iterator

from workshop_gpu.catalogue.spec import Combination, Limits, Memory, ModelSpec
from workshop_gpu.conductor.combining import problems_in
from workshop_gpu.conductor.ladder import (
    RUNGS,
    is_placement,
    makes_no_use_of,
    names,
    streams_nothing,
    takes_another_gpu,
)
from workshop_gpu.conductor.rungs import HOST

KINDS = ("diffusers",)
COMPILE = ("auto", "off")
DTYPES = ("", "float32", "float16", "bfloat16")

_MOST_GB = 10_000
_MOST_PREFETCH = 16

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_WORD = re.compile(r"[\w.-]*", re.ASCII)
_REVISION = re.compile(r"[\w./-]*", re.ASCII)

Broken = tuple[tuple[str, ...], str]
"""The field, as a path into the entry, and what is wrong with it."""


def broken_rules(spec: ModelSpec) -> Iterator[Broken]:
    """All rules that an entry breaks."""
    if not ID.fullmatch(spec.id):
        yield (
            ("id",),
            f'id "{spec.id[:80]}" must be up to 64 letters, digits, "-", "_" or ".", and begin '
            "with a letter or digit",
        )
    if spec.kind not in KINDS:
        yield ("kind",), f'kind "{spec.kind}" is not known; it is {" or ".join(KINDS)}'
    if spec.dtype not in DTYPES:
        yield ("dtype",), f'dtype "{spec.dtype}" is not known; it is {", ".join(DTYPES[1:])}'
    for name, number in (("keep_warm_s", spec.keep_warm_s), ("vram_gb", spec.vram_gb)):
        if not math.isfinite(number) or number < 0:
            yield (name,), f"{name} must be 0 or more"
    if spec.compile not in COMPILE:
        yield ("compile",), f'compile "{spec.compile[:80]}" is not known; it is auto or off'
    yield from _memory(spec.memory)
    yield from _source(spec)
    yield from _limits(spec.limits)
    yield from _defaults(spec)


def _source(spec: ModelSpec) -> Iterator[Broken]:
    source = spec.source
    named = [name for name in ("folder", "hub", "file") if getattr(source, name)]
    if len(named) != 1:
        found = " and ".join(named) or "none"
        yield ("source",), f"source names exactly one of folder, hub and file, here: {found}"
    if source.hub and not _HUB_ID.fullmatch(source.hub):
        yield (
            ("source", "hub"),
            f'hub "{source.hub[:80]}" is no Hugging Face id such as "stabilityai/sdxl-turbo"',
        )
    if "\0" in source.folder + source.file + source.gguf:
        yield ("source", named[0] if named else "folder"), "a path cannot hold a zero byte"
    if ".." in source.revision or not _REVISION.fullmatch(source.revision):
        yield ("source", "revision"), "revision is a branch, a tag or a commit"
    if not _WORD.fullmatch(source.variant):
        yield ("source", "variant"), 'variant is a word such as "fp16"'
    if source.revision and not source.hub:
        yield ("source", "revision"), "revision goes with hub only"
    if source.gguf and not source.folder:
        yield ("source", "gguf"), "gguf goes with folder only, which has all but the denoiser"
    if source.variant and source.file:
        yield ("source", "variant"), "variant goes with folder and hub only"


def _memory(memory: Memory) -> Iterator[Broken]:
    """What can be said without knowing the model and the card; the rest is refused when somebody
    asks for the model."""
    if isinstance(memory.placement, Combination):
        for role, problem in problems_in(memory.placement.words):
            yield ("memory", "placement", role), problem
    elif memory.placement and not is_placement(memory.placement):
        yield (
            ("memory", "placement"),
            f'placement "{memory.placement[:80]}" is not known; it is {", ".join(names())}, or a '
            'table of roles such as { encoders = "cpu", denoiser = "streamed" }',
        )
    if takes_another_gpu(memory.named) and memory.swap_device in HOST:
        yield (
            ("memory", "placement"),
            f'placement "{memory.named}" takes memory of another GPU; name it too, such as '
            'swap_device = "cuda:1"',
        )
    if memory.virtual_vram_gb and streams_nothing(memory.named):
        yield (
            ("memory", "virtual_vram_gb"),
            f'virtual_vram_gb is streamed, and placement "{memory.named}" streams nothing of '
            'the denoiser; write placement = "auto", name a rung that does, such as '
            '"staged-streamed", or leave virtual_vram_gb out',
        )
    yield from _inert(memory)
    for name in ("virtual_vram_gb", "swap_space_gb", "max_vram_gb", "min_free_gb"):
        number = getattr(memory, name)
        if not math.isfinite(number) or not 0 <= number <= _MOST_GB:
            yield ("memory", name), f"{name} must be 0 or more, at most {_MOST_GB:,}"
    if not 1 <= memory.prefetch <= _MOST_PREFETCH:
        yield ("memory", "prefetch"), f"prefetch must be 1 to {_MOST_PREFETCH}"


def _inert(memory: Memory) -> Iterator[Broken]:
    """What the rung that is named makes no use of: it would be of no effect, and nobody told."""
    placement = memory.named
    given = {
        "swap_space_gb": memory.swap_space_gb != 0,
        "prefetch": memory.prefetch != 1,
        "swap_device": memory.swap_device not in HOST,
    }
    for name in makes_no_use_of(placement, [name for name, is_given in given.items() if is_given]):
        if name == "swap_device":
            swapping = ", ".join(f'"{rung.name}"' for rung in RUNGS if rung.swaps)
            use, why = swapping, "takes no memory of another GPU"
            otherwise = "name one of these"
        else:
            use, why = "the buffers of streaming", "streams nothing"
            otherwise = 'name a rung that does, such as "staged-streamed"'
        yield (
            ("memory", name),
            f'{name} is for {use}, and placement "{placement}" {why}; write placement = "auto", '
            f"{otherwise}, or leave {name} out",
        )


def _limits(limits: Limits) -> Iterator[Broken]:
    for name in ("max_pixels", "max_side", "max_steps", "max_images", "size_multiple"):
        if getattr(limits, name) < 1:
            yield ("limits", name), f"{name} must be 1 or more"
    least = limits.size_multiple
    for name, room in (("max_pixels", least * least), ("max_side", least)):
        if 1 <= getattr(limits, name) < room:
            reason = f"{name} leaves no room for the smallest size, {least} x {least}"
            yield ("limits", name), reason


def _defaults(spec: ModelSpec) -> Iterator[Broken]:
    defaults, limits = spec.defaults, spec.limits
    if not 1 <= defaults.steps <= max(limits.max_steps, 1):
        yield ("defaults", "steps"), f"steps must be 1 to max_steps ({limits.max_steps})"
    if not math.isfinite(defaults.guidance) or defaults.guidance < 0:
        yield ("defaults", "guidance"), "guidance must be 0 or more"
    multiple = max(limits.size_multiple, 1)
    for name, side in (("width", defaults.width), ("height", defaults.height)):
        if side < 0 or side % multiple:
            yield (
                ("defaults", name),
                f"{name} must be a multiple of {multiple}; 0, or nothing, is the model's own",
            )
        elif side > limits.max_side:
            yield ("defaults", name), f"{name} must be at most max_side ({limits.max_side})"
    if defaults.width * defaults.height > max(limits.max_pixels, 1):
        yield (
            ("defaults", "width"),
            f"{defaults.width} x {defaults.height} is more than max_pixels ({limits.max_pixels})",
        )
