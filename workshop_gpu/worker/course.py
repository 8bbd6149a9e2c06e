"""The course of one call of a pipeline: its phases, and what of the model each of them needs.

First the prompt is encoded (and a picture to begin with), then the denoiser runs step by step, then
the VAE decodes. Staged
components come as their phase begins and leave with its end; encoders on the CPU, or on another
GPU, get their inputs there. All hooks are set as the call begins, and none is left when it ends.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import TracebackType
from typing import Any

import torch
from accelerate.utils import send_to_device

from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, TILE_SIDE, VAE, role_of
from workshop_gpu.worker.components import Component, OpenModel
from workshop_gpu.worker.embeddings import Embeddings, Reading
from workshop_gpu.worker.images import StepProfile
from workshop_gpu.worker.metering import Meter
from workshop_gpu.worker.placements import VISITORS, Home
from workshop_gpu.worker.staging import Stager

ENCODE, DENOISE, DECODE = "encode", "denoise", "decode"

_OF_THE_PROMPT = ("prompt", "negative_prompt", "guidance_scale", "true_cfg_scale")
"""Arguments of a call by which it is foreseen what the encoders will be asked."""


class Course:
    """A context for one call on the thread that draws; `phase` says how far it is.

    `careful`: the VAE computes in float32 and tile by tile, whatever the model's settings.
    `profile`: the steps are measured. With `embeddings`, encoders that are not on the device have
    nothing to do for a prompt that they read before. Entering and changing the phase raise
    OutOfMemory.
    """

    def __init__(
        self,
        model: OpenModel,
        stager: Stager | None = None,
        *,
        careful: bool = False,
        profile: bool = False,
        embeddings: Embeddings | None = None,
    ) -> None:
        self._model = model
        self._stager = stager
        self._careful = careful
        self._tiled = careful or model.placement.tiled
        self._profile = profile
        self._meter: Meter | None = None
        self._undo: list[Callable[[], object]] = []
        self._reading: Reading | None = None
        if embeddings is not None and not model.has_on_device(ENCODERS):
            self._reading = Reading(embeddings)
        self.phase = ENCODE

    def reads(self, pipeline: Any, arguments: Mapping[str, object]) -> None:
        """This pipeline object, which is the call's alone, will be called with these arguments."""
        encode = getattr(pipeline, "encode_prompt", None)
        if self._reading is not None and encode is not None:
            pipeline.encode_prompt = partial(self._read_prompt, self._reading, encode)
            self._undo.append(partial(delattr, pipeline, "encode_prompt"))
            self._reading.of({name: arguments.get(name) for name in _OF_THE_PROMPT})

    @property
    def encoded(self) -> bool:
        """Whether the text encoders had anything to do, as far as it was looked at."""
        return self._reading is None or self._reading.encoded

    def __enter__(self) -> "Course":
        try:
            for component in self._model.components:
                self._prepare(component)
            if self._reading is None or not self._reading.is_known:
                self._bring(ENCODERS)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        if self._reading is not None:
            self._reading.end(well=kind is None)

    def step_ended(self, *, last: bool) -> None:
        """The pipeline's loop has done a step."""
        if self._meter is not None:
            self._meter.start_step()
        if last:
            self._decode()

    def profiles(self) -> tuple[StepProfile, ...]:
        """How the steps' time was spent, where they were measured."""
        return self._meter.profiles() if self._meter is not None else ()

    # Phases

    def _encode(self, *_: Any) -> None:
        """Some pipelines look at the picture to begin with before they read the prompt."""
        if self.phase == ENCODE:
            self._leave(VAE)
            self._bring(ENCODERS)

    def _read_prompt(self, reading: Reading, encode: Any, *args: Any, **named: Any) -> Any:
        """In the place of the pipeline's `encode_prompt`."""

        def encoded() -> Any:
            self._encode()
            return encode(*args, **named)

        return reading.read(encoded, args, named)

    def _denoise(self, *_: Any) -> None:
        if self.phase == DENOISE:
            return
        self._leave(ENCODERS, VAE)
        self.phase = DENOISE
        self._bring(DENOISER)
        if self._profile and self._meter is None:
            device = self._model.components[0].torch_device
            self._meter = Meter(on_card=device.type == "cuda")
            if self._model.rotation is not None:
                self._model.rotation.meter = self._meter

    def _decode(self) -> None:
        if self.phase != DECODE:
            self._leave(ENCODERS, DENOISER)
            self.phase = DECODE
        self._bring(VAE)

    def _bring(self, role: str) -> None:
        for component in self._model.with_role(role):
            if component.home in VISITORS and self._stager is not None:
                self._stager.bring(component, self.phase)

    def _leave(self, *roles: str) -> None:
        for role in roles:
            for component in self._model.with_role(role):
                if component.home in VISITORS and self._stager is not None:
                    self._stager.send_away(component)

    # Hooks

    def _prepare(self, component: Component) -> None:
        module, role = component.module, role_of(component.name)
        if role == DENOISER:
            self._hook(module.register_forward_pre_hook(self._denoise))
            return
        if role == VAE:
            self._prepare_vae(module)
            return
        if role == ENCODERS and self._reading is not None:
            called = self._reading.encoder_is_called
            self._hook(module.register_forward_pre_hook(lambda *_: called()))
        if component.home in VISITORS:
            self._hook(module.register_forward_pre_hook(self._encode))
        elif component.home in (Home.CPU, Home.ELSEWHERE):
            there, here = component.computes_on, component.torch_device
            self._hook(module.register_forward_pre_hook(partial(_sent, there), with_kwargs=True))
            self._hook(module.register_forward_hook(partial(_onto, here)))

    def _hook(self, handle: Any) -> None:
        self._undo.append(handle.remove)

    def _prepare_vae(self, vae: Any) -> None:
        """A VAE is called by its methods, where torch has no hooks: they are set in the object."""
        # Some pipelines cast the VAE before they use it: it has to be there by then.
        changes: dict[str, Any] = {
            "decode": self._decoding,
            "encode": self._encoding,
            "to": self._casting,
        }
        for name, change in changes.items():
            if method := getattr(vae, name, None):
                setattr(vae, name, partial(change, vae, method))
                self._undo.append(partial(delattr, vae, name))
        if self._tiled:
            for name, value in _tiling(vae).items():
                self._undo.append(partial(setattr, vae, name, getattr(vae, name)))
                setattr(vae, name, value)

    def _decoding(self, vae: Any, method: Any, latents: Any, *args: Any, **options: Any) -> Any:
        self._decode()
        if self._careful:
            vae.float()
            latents = latents.to(torch.float32)
        return method(latents, *args, **options)

    def _encoding(self, _: Any, method: Any, *args: Any, **options: Any) -> Any:
        self._look_at_picture()
        return method(*args, **options)

    def _casting(self, _: Any, method: Any, *args: Any, **options: Any) -> Any:
        if self.phase == ENCODE:
            self._look_at_picture()
        return method(*args, **options)

    def _look_at_picture(self) -> None:
        """The VAE encodes what the picture begins with, before the denoiser's first step."""
        self._leave(ENCODERS)  # never both at once: so much room is not counted with
        self._bring(VAE)

    def _end(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._leave(ENCODERS, DENOISER, VAE)
        if self._careful:  # the next picture's call is an ordinary one
            for component in self._model.with_role(VAE):
                component.mend()
        if self._model.rotation is not None:
            self._model.rotation.settle()


def _tiling(vae: Any) -> dict[str, object]:
    """What is set in a VAE that works tile by tile: of those that it has, by name."""
    wanted: dict[str, object] = {"use_tiling": True, "use_slicing": True}
    side, latent_side = "tile_sample_min_size", "tile_latent_min_size"
    if (own := getattr(vae, side, 0)) > TILE_SIDE:
        wanted |= {side: TILE_SIDE, latent_side: getattr(vae, latent_side) * TILE_SIDE // own}
    return {name: value for name, value in wanted.items() if hasattr(vae, name)}


def _sent(device: torch.device, _: Any, args: Any, kwargs: Any) -> Any:
    return send_to_device(args, device), send_to_device(kwargs, device)


def _onto(device: torch.device, _: Any, args: Any, output: Any) -> Any:
    return send_to_device(output, device)


def computing_on(pipeline: Any, device: torch.device) -> None:
    """Let a pipeline object take this device for its own, wherever its components are now."""
    cls: Any = type(pipeline)
    pipeline.__class__ = _class_on(cls, device)


@lru_cache(maxsize=64)
def _class_on(cls: Any, device: torch.device) -> Any:
    here = property(lambda _: device)
    return type(cls.__name__, (cls,), {"_execution_device": here, "device": here})
