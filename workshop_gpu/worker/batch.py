"""Jobs that are drawn in the same calls of the pipeline, each of them answered for itself."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from workshop_gpu.worker import protocol
from workshop_gpu.worker.compiling import Compiling, NoTwin
from workshop_gpu.worker.components import OpenModel
from workshop_gpu.worker.course import Course
from workshop_gpu.worker.devices import Device
from workshop_gpu.worker.drawing import (
    JobCancelled,
    OnStep,
    Picture,
    Step,
    check_params,
    check_picture,
    decoding_failed,
    draw,
)
from workshop_gpu.worker.failures import Cancelled, Outcome, Success, attempt
from workshop_gpu.worker.images import ImageRecord, StepProfile, encode_png
from workshop_gpu.worker.inputs import Inputs, read_inputs
from workshop_gpu.worker.link import Link
from workshop_gpu.worker.loras import Loras, wanted_by
from workshop_gpu.worker.metering import StepClock
from workshop_gpu.worker.previews import PreviewMap, Sketcher
from workshop_gpu.worker.protocol import BatchMember, GenerateParams
from workshop_gpu.worker.staging import Stager
from workshop_gpu.worker.turns import Turns
from workshop_gpu.worker.writing import Writer

_OF_ONE_LENGTH = frozenset(
    {
        "StableDiffusionPipeline",
        "StableDiffusionXLPipeline",
        "StableDiffusion3Pipeline",
        "FluxPipeline",
        "PixArtAlphaPipeline",
        "PixArtSigmaPipeline",
        "SanaPipeline",
        "AuraFlowPipeline",
    }
)
"""Pipelines that bring every prompt to the same length. Others pad to the longest of the call: a
picture would then depend on its neighbour's prompt, which its record may not tell."""

_PROGRESS_INTERVAL_S = 0.2
"""Between two reports of a job's steps; the first and the last are always told. Each report
wakes the server and every client that watches, which slows a worker that shares their cores."""


@dataclass(frozen=True)
class Drawn:
    """A job's PNG files as they are made. `batch` jobs were drawn in this time and with this
    working memory.

    Their steps took `steps_s` of it (0: not measured). `loras` are ready for the model's next jobs.
    `encoded`: the text encoders read the prompt for each picture.
    """

    files: list[Future[bytes]]
    seconds_s: float
    peak_bytes: int
    batch: int
    compiled: bool = False
    loras: tuple[str, ...] = ()
    steps_s: float = 0.0
    encoded: bool = True


Answer = Callable[[str, Outcome[Drawn]], None]
"""Tells the host how a job ended."""


def divided(members: Sequence[BatchMember], pipeline: Any) -> list[list[BatchMember]]:
    """The jobs in groups that one call can draw, in the order of their first.

    Some pipelines take "no negative prompt" for something else than an empty one, so jobs with and
    without are never in one call. Neither are jobs with different LoRAs, nor one that repeats a
    picture of an earlier batch, begins with a picture, or is measured step by step.
    """
    groups: dict[object, list[BatchMember]] = {}
    for number, member in enumerate(members):
        params = member.params
        key: object = number
        repeats = params.batch > 1 or params.compiled is not None
        alone = repeats or params.start_image or params.profile
        if not alone and type(pipeline).__name__ in _OF_ONE_LENGTH:
            size = (params.width, params.height)
            loras = tuple(params.loras.items())
            key = (size, params.steps, params.guidance, bool(params.negative_prompt), loras)
        groups.setdefault(key, []).append(member)
    return list(groups.values())


@dataclass
class _Sitter:
    """A job that is being drawn, with what it has so far."""

    member: BatchMember
    sketcher: Sketcher
    inputs: Inputs | None = None
    files: list[Future[bytes]] = field(default_factory=list)
    told_s: float = -math.inf

    @property
    def params(self) -> GenerateParams:
        """What its next picture is drawn with."""
        params = self.member.params
        return msgspec.structs.replace(params, seed=params.seed + len(self.files), images=1)

    def keep(self, writer: Writer, picture: Picture, record: ImageRecord) -> None:
        """The picture becomes a file that says how it is made again."""
        self.files.append(writer.begin(partial(encode_png, picture.image, record)))


@dataclass(frozen=True)
class Tools:
    """What jobs are drawn with, whichever they are."""

    link: Link
    turns: Turns
    device: Device
    stager: Stager
    loras: Loras
    compiling: Compiling
    writer: Writer


class Batch:
    """A group of jobs that `divided` found. Each gets one answer, from here or from its owner."""

    def __init__(
        self,
        members: Sequence[BatchMember],
        tools: Tools,
        answer: Answer,
        *,
        compiles: bool = False,
    ) -> None:
        self._open = {member.job: member for member in members}
        self._tools = tools
        self._link = tools.link
        self._answer_job = answer
        self._profile = any(member.params.profile for member in members)
        self._compiled = compiles
        self._course: Course | None = None
        self._encoded = True
        self._clock = StepClock(on_card=tools.device.torch_device.type == "cuda")

    @property
    def phase(self) -> str:
        """How far the pipeline's last call came; "": there was none."""
        return self._course.phase if self._course is not None else ""

    def unanswered(self) -> list[str]:
        """The jobs that have no answer yet, in order."""
        return list(self._open)

    def start(self) -> bool:
        """Say that the jobs start, but for those cancelled meanwhile; whether there are any."""
        for job in self.unanswered():
            if self._link.cancellations.cancelled(job):
                self._answer(job, Cancelled())
            else:
                self._link.send(protocol.Started(job))
        return bool(self._open)

    def draw(
        self, model: OpenModel, previews: PreviewMap, record: Callable[..., ImageRecord]
    ) -> None:
        """Draw and answer the jobs. Raises JobCancelled once all are, and whatever `draw` does.

        Only for who has the turn; others get it between two steps.
        """
        started = time.monotonic()
        self._tools.device.start_peak()
        with self._tools.loras.on(model, wanted_by(next(iter(self._open.values())))) as digests:
            self._draw_all(model, previews, partial(record, lora_sha256=digests), started)

    def _draw_all(
        self,
        model: OpenModel,
        previews: PreviewMap,
        record: Callable[..., ImageRecord],
        started: float,
    ) -> None:
        sitters = self._seated(model, previews)
        together, device = len(sitters), self._tools.device
        self._choose(model, sitters.values())
        while sitting := [sitters[job] for job in self._open]:
            for sitter, picture, params in self._drawn_once(model, sitting):
                job, member = sitter.member.job, sitter.member
                checked = attempt(partial(check_picture, model, picture))
                if not isinstance(checked, Success):
                    self._answer(job, checked)
                    continue
                known = record(params, member.metadata, profile=self._profiles())
                sitter.keep(self._tools.writer, picture, known)
                if len(sitter.files) == member.params.images:
                    seconds_s, peak_bytes = time.monotonic() - started, device.peak_bytes()
                    drawn = Drawn(
                        sitter.files,
                        seconds_s,
                        peak_bytes,
                        together,
                        self._compiled,
                        self._tools.loras.kept(model),
                        min(seconds_s, self._clock.seconds()),
                        self._encoded,
                    )
                    self._answer(job, Success(drawn))
                attempt(partial(previews.learn, picture))  # a preview is never worth a picture

    def _choose(self, model: OpenModel, sitters: Iterable[_Sitter]) -> None:
        """With compiled blocks or without, for all of it."""
        wanted = [sitter.params for sitter in sitters]
        ready = bool(wanted) and self._tools.compiling.chooses(model, wanted)
        self._compiled = self._compiled and ready

    def _seated(self, model: OpenModel, previews: PreviewMap) -> dict[str, _Sitter]:
        sitters = {}
        for job, member in list(self._open.items()):
            params = member.params
            begun = attempt(partial(self._begun_with, model, member))
            if isinstance(begun, Success):
                sketcher = Sketcher(previews, params.height, params.width)
                sitters[job] = _Sitter(member, sketcher, begun.value)
            else:
                self._answer(job, begun)
        return sitters

    def _begun_with(self, model: OpenModel, member: BatchMember) -> Inputs | None:
        check_params(model, member.params)
        return read_inputs(member.inputs, member.params)

    def _drawn_once(
        self, model: OpenModel, sitting: Sequence[_Sitter]
    ) -> list[tuple[_Sitter, Picture, GenerateParams]]:
        """One picture for each job, but for those cancelled on the way, and how it was made."""
        wanted = [sitter.params for sitter in sitting]
        places = list(range(len(sitting)))
        if len(sitting) == 1:
            # As many as when the picture was first drawn; who sat beside it makes no difference.
            (params,) = wanted
            wanted, places = [params] * params.batch, [params.place]
        call = partial(self._called, model, wanted, inputs=sitting[0].inputs)
        pictures = call(partial(self._after_step, sitting, places))
        if failed := [place for place in places if decoding_failed(pictures[place])]:
            # Once more, with more care; who waits has seen these steps already. The others keep
            # what they have: it is what their records repeat.
            mended = call(partial(self._pass_step, sitting), careful=True)
            for place in failed:
                pictures[place] = mended[place]
        return [
            (
                sitter,
                pictures[place],
                msgspec.structs.replace(
                    wanted[place],
                    batch=len(wanted),
                    place=place,
                    manner=model.placement.manner,
                    compiled=self._compiled,
                ),
            )
            for sitter, place in zip(sitting, places, strict=True)
            if sitter.member.job in self._open
        ]

    def _called(
        self,
        model: OpenModel,
        wanted: list[GenerateParams],
        on_step: OnStep,
        careful: bool = False,
        inputs: Inputs | None = None,
    ) -> list[Picture]:
        """Without compiled blocks once one is called in a way for which none was made."""
        # LoRAs change what encoders give.
        embeddings = None if wanted[0].loras else model.embeddings
        self._course = Course(
            model,
            self._tools.stager,
            careful=careful,
            profile=self._profile,
            embeddings=embeddings,
        )
        drawing = self._tools.compiling.drawing(model, wanted, self._compiled)
        with suppress(NoTwin), drawing:
            pictures = draw(model, wanted, on_step, self._course, inputs)
            self._encoded = self._encoded and self._course.encoded
            return pictures
        self._compiled = False
        return self._called(model, wanted, on_step, careful, inputs)

    def _profiles(self) -> tuple[StepProfile, ...]:
        """How the time of the last call's steps was spent, where that was asked for."""
        return self._course.profiles() if self._course is not None else ()

    def _pass_step(self, sitting: Sequence[_Sitter], step: Step) -> None:
        """A step that nobody is told of."""
        self._clock.step_ended(step.index, step.count)
        self._tools.turns.let_others_pass()
        if len(sitting) == 1 and self._link.cancellations.cancelled(sitting[0].member.job):
            raise JobCancelled

    def _after_step(self, sitting: Sequence[_Sitter], places: Sequence[int], step: Step) -> None:
        self._clock.step_ended(step.index, step.count)
        self._tools.turns.let_others_pass()
        for sitter, place in zip(sitting, places, strict=True):
            job, params = sitter.member.job, sitter.member.params
            if job not in self._open:
                continue
            if self._link.cancellations.cancelled(job):
                if len(self._open) == 1:
                    raise JobCancelled  # the last one: its answer waits for its memory
                self._answer(job, Cancelled())
                continue
            image, steps = len(sitter.files), params.drawn_steps
            done = image * steps + min(steps, (step.index + 1) * steps // step.count)
            sketch = attempt(partial(sitter.sketcher.sketch, step.of(place)))
            preview = sketch.value if isinstance(sketch, Success) else b""
            all_steps, now_s = steps * params.images, time.monotonic()
            recently = now_s - sitter.told_s < _PROGRESS_INTERVAL_S
            if preview or done == all_steps or not recently:
                sitter.told_s = now_s
                self._link.send(protocol.Progress(job, done, all_steps, image, preview))

    def _answer(self, job: str, outcome: Outcome[Drawn]) -> None:
        del self._open[job]
        self._answer_job(job, outcome)
