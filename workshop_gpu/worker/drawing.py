"""One call of a pipeline: its arguments, its steps, and whether what comes out is a picture.

What comes out is bit for bit what the same call on the bare pipeline gives: the pipeline's own
loop runs, with the same arguments, and the callback only looks. A call may draw several pictures
together. Each has its own prompt and the noise of its own seed, but sums are rounded in an order
that depends on how many are drawn: so a picture is repeated bit for bit in a call of as many, at
the same place, whatever stands at the others.
"""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from workshop_gpu.conductor import errors
from workshop_gpu.conductor.errors_placement import NotRepeatable
from workshop_gpu.conductor.rungs import RESIDENT, manner_in_words
from workshop_gpu.worker.components import OpenModel
from workshop_gpu.worker.course import Course, computing_on
from workshop_gpu.worker.inputs import Inputs
from workshop_gpu.worker.protocol import GenerateParams
from workshop_gpu.worker.variants import variant_class, variant_of

Value = TypeVar("Value")

_LARGEST_SEED = 2**64 - 1


class JobCancelled(Exception):
    """The job was cancelled; raised between two steps, to leave the pipeline's loop."""


@dataclass(frozen=True)
class Step:
    """The state after one step of the pipeline's loop. `count` is the number of its steps."""

    index: int
    count: int
    latents: torch.Tensor
    scheduler: Any

    def of(self, place: int) -> "Step":
        """The same for one picture of the call alone."""
        return dataclasses.replace(self, latents=self.latents[place : place + 1])


OnStep = Callable[[Step], None]
"""Looks at a step. It may raise JobCancelled, and must not change the latents."""


@dataclass(frozen=True)
class Picture:
    """A finished picture: `pixels` are height x width x 3 in 0...1; the latents as last seen.

    What is found out about it is kept: the device waits meanwhile.
    """

    pixels: npt.NDArray[np.float32]
    latents: torch.Tensor | None

    @cached_property
    def image(self) -> Image.Image:
        """The picture in eight bits, rounded as diffusers rounds."""
        return Image.fromarray((self.pixels * 255).round().astype(np.uint8))

    @cached_property
    def has_nan(self) -> bool:
        """Whether a pixel is not a number, or infinite."""
        return not np.isfinite(self.pixels).all()

    @cached_property
    def is_blank(self) -> bool:
        """Whether all pixels are of one colour, as no denoiser paints them."""
        bands = self.image.split()
        return all(low == high for low, high in (band.getextrema() for band in bands))

    @cached_property
    def latents_are_numbers(self) -> bool:
        """Also where none are known."""
        return self.latents is None or bool(self.latents.isfinite().all())


def check_params(model: OpenModel, params: GenerateParams) -> None:
    """Refuse what this pipeline cannot do, before anything runs. Raises InvalidRequest or
    NotRepeatable."""
    if params.seed < 0 or params.seed + params.images - 1 > _LARGEST_SEED:
        raise errors.InvalidRequest("seed", f"must be from 0 to {_LARGEST_SEED}")
    if params.images < 1:
        raise errors.InvalidRequest("images", "must be at least 1")
    if not 0 <= params.place < params.batch:
        raise errors.InvalidRequest("place", "must be from 0 to below batch")
    manner = model.placement.manner
    if params.manner not in ("", manner):
        name, words = model.source.model, manner_in_words(params.manner)
        raise NotRepeatable(name, words, "the model is not placed so now")
    if params.start_image and not (0 < params.strength <= 1 <= params.steps * params.strength):
        raise errors.InvalidRequest("strength", "must be above 0, at most 1, and for a whole step")
    scheduler = getattr(model.pipeline, "scheduler", None)
    # Only schedulers that pick among the levels of training run out of them; those of flow
    # matching divide their way as finely as one likes.
    discrete = hasattr(scheduler, "alphas_cumprod")
    levels = scheduler.config.num_train_timesteps if scheduler and discrete else None
    if params.steps < 1 or (levels and params.steps > levels):
        raise errors.InvalidRequest("steps", f"must be from 1 to {levels or 'the limit'}")


def draw(
    model: OpenModel,
    wanted: Sequence[GenerateParams],
    on_step: OnStep,
    course: Course | None = None,
    inputs: Inputs | None = None,
) -> list[Picture]:
    """Draw one picture for each of these in one call; all but prompts and seeds must be equal.

    Raises JobCancelled, OutOfMemory, torch's errors and the pipeline's own. `course` is this
    call's; without one, all of the model must be on the device. With `inputs`, ImagesNotAccepted
    too.
    """
    view = _own_view(model, inputs)
    if model.placement != RESIDENT:
        computing_on(view, model.components[0].torch_device)
    on_course = course or Course(model)
    latents: list[torch.Tensor | None] = [None] * len(wanted)

    def after_step(pipeline: Any, index: int, _: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        count = getattr(pipeline, "num_timesteps", None) or wanted[0].drawn_steps
        step = Step(index, count, tensors["latents"], pipeline.scheduler)
        latents[:] = [step.of(place).latents for place in range(len(wanted))]
        on_step(step)
        on_course.step_ended(last=index + 1 == count)
        return {}

    arguments = call_arguments(view, wanted, inputs)
    if "callback_on_step_end" in inspect.signature(view.__call__).parameters:
        arguments["callback_on_step_end"] = after_step
    on_course.reads(view, arguments)
    with torch.inference_mode(), on_course:
        images = view(**arguments, output_type="np").images
    return [Picture(pixels, last) for pixels, last in zip(images, latents, strict=True)]


def decoding_failed(picture: Picture) -> bool:
    """Whether the VAE seems to have made no picture of latents that are numbers."""
    return picture.latents_are_numbers and (picture.has_nan or picture.is_blank)


def check_picture(model: OpenModel, picture: Picture) -> None:
    """Refuse what is no picture. Raises GenerationFailed."""
    if picture.has_nan or not picture.latents_are_numbers:
        raise errors.GenerationFailed(
            model.source.model,
            "the picture is not a number (NaN) somewhere. Its VAE or denoiser probably does not "
            f"work in {_dtype_names(model)}: set another dtype for this model.",
        )

    if picture.is_blank:
        raise errors.GenerationFailed(
            model.source.model,
            "the picture is blank: all its pixels are alike, also with its VAE in float32. "
            "Try another seed, more steps or another size.",
        )


def call_arguments(
    pipeline: Any, wanted: Sequence[GenerateParams], inputs: Inputs | None = None
) -> dict[str, Any]:
    """What this pipeline's call is given; a pipeline without a parameter does not get it.

    A true_cfg_scale beside a guidance_scale means that the latter goes into the network of
    guidance-distilled models (Flux) and that the others (Qwen-Image) are guided by the former.
    """
    accepted = inspect.signature(pipeline.__call__).parameters
    params = wanted[0]
    negative = _one_or_list([each.negative_prompt for each in wanted])
    arguments: dict[str, Any] = {
        "prompt": _one_or_list([each.prompt for each in wanted]),
        "negative_prompt": negative if any(each.negative_prompt for each in wanted) else None,
        "num_inference_steps": params.steps,
        "guidance_scale": params.guidance,
        "width": params.width,
        "height": params.height,
        "generator": _one_or_list(
            [torch.Generator("cpu").manual_seed(each.seed) for each in wanted]
        ),
    }
    if "true_cfg_scale" in accepted and not _guidance_distilled(pipeline):
        del arguments["guidance_scale"]
        arguments["true_cfg_scale"] = params.guidance
        if params.guidance > 1:
            arguments["negative_prompt"] = _one_or_list(
                [each.negative_prompt or " " for each in wanted]
            )
    if inputs is not None:
        arguments |= {"image": inputs.image, "strength": params.strength}
        if inputs.mask is not None:
            arguments["mask_image"] = inputs.mask
    return {name: value for name, value in arguments.items() if name in accepted}


def _one_or_list(values: list[Value]) -> Value | list[Value]:
    """One picture is drawn by the same call as on the bare pipeline: without lists."""
    return values[0] if len(values) == 1 else values


def _guidance_distilled(pipeline: Any) -> bool:
    config = getattr(getattr(pipeline, "transformer", None), "config", None)
    return bool(getattr(config, "guidance_embeds", False))


def _own_view(model: OpenModel, inputs: Inputs | None) -> Any:
    """The same components behind another pipeline object, with a scheduler of its own.

    A scheduler counts steps, and a pipeline keeps the guidance of its last call: both belong to
    one picture. The copy is shallow, so no weights are copied.
    """
    pipeline = model.pipeline
    scheduler = getattr(pipeline, "scheduler", None)
    if scheduler is not None:
        scheduler = type(scheduler).from_config(scheduler.config)
    if inputs is not None:
        cls = variant_class(model.source.model, pipeline, masked=inputs.mask is not None)
        return variant_of(pipeline, cls, scheduler)
    view = copy.copy(pipeline)
    if scheduler is not None:
        view.scheduler = scheduler
    return view


def _dtype_names(model: OpenModel) -> str:
    return ", ".join(sorted({str(dtype).removeprefix("torch.") for dtype in model.dtypes.values()}))
