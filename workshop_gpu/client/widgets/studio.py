"""`wg.Studio()`: prompt, model, options, progress, pictures and their history in one widget.

Several threads meet here. The kernel's main thread (or a subshell) handles what the browser
sends; the stream's thread brings what changed on the server; one thread per job follows it, one
fetches earlier pictures. The browser writes the options and never the results, the threads write
the results and never the options, so that no trait has two writers.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from typing import Any

import traitlets
from PIL import Image

from workshop_gpu.api import schemas, schemas_room
from workshop_gpu.client.asking import pick_model
from workshop_gpu.client.client import Client
from workshop_gpu.client.errors import BadRequest, ClientClosed, ClientError, JobCancelled
from workshop_gpu.client.faults import Faults
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.job_handle import JobHandle
from workshop_gpu.client.session import current
from workshop_gpu.client.widgets.beginning import StudioBeginning
from workshop_gpu.client.widgets.choices import as_code, model_choice, model_standing
from workshop_gpu.client.widgets.history import Entry, History
from workshop_gpu.client.widgets.lora_options import StudioLoras
from workshop_gpu.client.widgets.samples import samples
from workshop_gpu.client.widgets.scripts import script, style
from workshop_gpu.client.words import Progress, describe

_MOST_THUMBNAILS = 64
"""In one wish of the browser."""
_BROKE = "Something in this studio broke"
_TAKEN = ("prompt", "negative_prompt", "steps", "guidance", "width", "height")
_HOW = ("batch", "place", "manner", "compiled")
"""In a picture's metadata, what makes it the same to the last bit."""

Asked = dict[str, Any]
"""The arguments of `Client.submit`."""


class Studio(StudioBeginning, StudioLoras):
    """Make pictures by hand. Every option is a trait: set it, read it, observe it.

    `images` are the pictures made so far with this studio, `images[-1]` the last one. Observers of
    `images` run in a thread of their own.
    """

    _esm = script("studio/studio.js")
    _css = style(
        "frame.css",
        "controls.css",
        *(f"studio/{part}.css" for part in ("form", "start", "loras", "stage")),
    )

    images = traitlets.List(trait=traitlets.Instance(GeneratedImage))

    _standings = traitlets.Dict().tag(sync=True)
    """How each model stands, by its id."""
    _faces = traitlets.Dict().tag(sync=True)
    """A small picture of each model, by its id."""
    _job = traitlets.Dict().tag(sync=True)
    """The job's id and what happens with it in words; empty before the first one."""
    _preview = traitlets.Unicode("").tag(sync=True)
    _shown = traitlets.List(trait=traitlets.Dict()).tag(sync=True)
    """The pictures on the stage: key, PNG bytes, how each was made."""
    _banner = traitlets.Unicode("").tag(sync=True)
    """What the instructor tells everybody."""
    _history = traitlets.List(trait=traitlets.Dict()).tag(sync=True)

    def __init__(self, client: Client | None = None, **options: Any) -> None:
        self._client = client or current()
        self._lock = threading.Lock()
        self._busy = False
        self._handle: JobHandle | None = None
        self._left: dict[str, str] = {}
        self._past = History(self._client)
        self._faults = Faults()
        self._fetcher = ThreadPoolExecutor(1, "workshop-gpu-studio-history")
        models = list(self._client.models())
        if not options.get("model"):
            options["model"] = pick_model(models)
        super().__init__(
            _models=[model_choice(model) for model in models],
            _standings={model.id: model_standing(model) for model in models},
            _faces=samples([model.id for model in models]),
            **options,
        )
        self.on_msg(self._on_message)
        self._unsubscribe = self._client.events.subscribe(self._on_event)
        self._later(self._recall)

    def generate(self) -> JobHandle:
        """Submit a job with the present options, as the button does; the pictures show up here.

        Raises what `Client.submit` raises, and BadRequest while another job of this studio runs.
        """
        asked = self._asked()
        self._claim()
        try:
            handle = self._handle = self._client.submit(**asked)
        except BaseException:
            self._release()
            raise
        self._in_a_thread(self._follow, handle)
        return handle

    def cancel(self) -> None:
        """Cancel the job that runs or waits; nothing happens where there is none."""
        if self._handle is not None:
            self._handle.cancel()

    def close(self) -> None:
        """Take the widget off the screen and stop listening."""
        unsubscribe = getattr(self, "_unsubscribe", None)
        if unsubscribe is not None:
            unsubscribe()
            self._fetcher.shutdown(wait=False, cancel_futures=True)
        super().close()

    def __repr__(self) -> str:
        return f"<Studio model={self.model!r} prompt={self.prompt!r} images={len(self.images)}>"

    # wishes of the browser

    def _on_message(self, _: Any, content: Any, __: Any) -> None:
        wish = content if isinstance(content, dict) else {}
        try:
            self._fulfil(wish)
        except traitlets.TraitError as problem:
            self._show_error("That value does not work", str(problem))
        except ClientError as problem:
            self._show_error(problem.title, problem.message)
        finally:
            self.send({"heard": True})

    def _fulfil(self, wish: dict[str, Any]) -> None:
        match wish:
            case {"wish": "generate"}:
                self._take_options(wish.get("options"))
                self._generate_in_a_thread({})
            case {"wish": "again", "key": str(key)}:
                self._repeat(key, vary=False)
            case {"wish": "vary", "key": str(key)}:
                self._repeat(key, vary=True)
            case {"wish": "cancel"}:
                self.cancel()
            case {"wish": "begin", "data": str(data)}:
                self._take_start_image(data)
            case {"wish": "begin", "key": str(key)}:
                self.start_image = next((_opened(e) for e in self._shown if e["key"] == key), None)
            case {"wish": "mask", "data": str(data), "view": str(view)}:
                self._take_mask(data, view)
            case {"wish": "show", "key": str(key)}:
                self._later(self._recall_picture, key)
            case {"wish": "thumbnails", "keys": [*keys]}:
                for key in keys[:_MOST_THUMBNAILS]:
                    self._later(self._send_thumbnail, str(key))
            case _:  # a page of another version
                pass

    def _repeat(self, key: str, *, vary: bool) -> None:
        """Take a picture's options, and make it again, or with another seed."""
        made = next((each["made"] for each in self._shown if each["key"] == key), None)
        if made is None or "model" not in made:
            return
        self.model = made["model"]  # first, because a model brings its own defaults
        with self.hold_trait_notifications():
            for name in _TAKEN:
                if name in made:
                    setattr(self, name, made[name])
            self.seed = None if vary else made["seed"]
            self.count = 1
            self.loras = made.get("loras", {})
        self._begin_as(made)
        self._generate_in_a_thread({} if vary else {key: made[key] for key in _HOW if key in made})

    def _begin_as(self, made: dict[str, Any]) -> None:
        """With the pictures that this one began with, as the server has them."""
        start, mask = made.get("start_image"), made.get("mask")
        self.start_image = self._client.sent_picture(start) if start else None
        self.mask = self._client.sent_picture(mask) if mask else None
        self.strength = made.get("strength") if start else None

    def _generate_in_a_thread(self, beside: Asked) -> None:
        """A server that is just being restarted must not hold up the kernel."""
        asked = self._asked() | beside
        self._claim()
        self._job = {"id": "", "state": "asking", "text": "Asking the server"}
        self._in_a_thread(self._ask, asked)

    def _asked(self) -> Asked:
        return {
            "prompt": self.prompt,
            "model": self.model,
            "negative_prompt": self.negative_prompt,
            "seed": self.seed,
            "steps": self.steps,
            "guidance": self.guidance,
            "size": self._size(),
            "images": self.count,
            "loras": self.loras,
            **self._begin_with(),
        }

    # one job at a time

    def _claim(self) -> None:
        """Raises BadRequest while another job of this studio is under way."""
        with self._lock:
            if self._busy:
                raise BadRequest(
                    "invalid_request",
                    "this studio is making a picture already. Wait for it, or cancel it.",
                )
            self._busy = True
        self._error = {}
        self._preview = ""

    def _release(self) -> None:
        with self._lock:
            self._busy = False

    def _in_a_thread(self, target: Any, *args: Any) -> None:
        threading.Thread(
            target=target, args=args, daemon=True, name="workshop-gpu-studio-job"
        ).start()

    def _ask(self, asked: Asked) -> None:
        """In a thread of its own: submit, then follow."""
        try:
            handle = self._handle = self._client.submit(**asked)
        except ClientError as problem:
            self._release()
            self._show_error(problem.title, problem.message)
            self._job = {"id": "", "state": "failed", "text": problem.message}
        except Exception as fault:  # of ours: the next click must not wait for this one for ever
            self._release()
            self._show_fault(fault)
            self._job = {"id": "", "state": "failed", "text": _BROKE}
        else:
            self._follow(handle)

    def _follow(self, handle: JobHandle) -> None:
        """In a thread of the job's own: show it until it ends."""
        try:
            made = handle.wait(watch=self._watch)
            self._past.keep(handle.id, made)
            went_on = handle.job.went_on
            self._shown = [_shown(f"{handle.id}:{i}", each, went_on) for i, each in enumerate(made)]
            self.images = [*self.images, *made]
            self._remember([handle.job])
        except JobCancelled:
            pass  # the person did it, and the words say it
        except ClientClosed:
            pass  # nobody looks any more
        except ClientError as problem:
            self._show_error(problem.title, problem.message)
        except Exception as fault:  # of ours, or of somebody who observes `images`
            self._show_fault(fault)
        finally:
            self._preview = ""
            self._release()
            self._show(Progress(handle.job))

    def _watch(self, progress: Progress) -> None:
        """Its end is shown when its pictures are, and the next one may come."""
        if not progress.job.state.ended:
            self._show(progress)

    def _show(self, progress: Progress) -> None:
        words = describe(progress)
        job = progress.job
        if progress.preview is not None:
            self._preview = progress.preview.data
        made = job.params or {}
        self._job = {
            "id": job.id,
            "state": job.state.value,
            "text": words.text,
            "part": words.part,
            "wait_s": words.wait_s,
            "width": made.get("width"),
            "height": made.get("height"),
        }
        if not self._client.events.live:
            self._show_models()

    def _show_error(self, title: str, message: str) -> None:
        self._error = {"title": title, "message": message}

    def _show_fault(self, fault: Exception) -> None:
        self._faults.say(fault)
        self._show_error(_BROKE, f"{fault!r}. Make the picture again; the instructor can help.")

    # what the server tells

    def _on_event(self, event: schemas.StreamEvent) -> None:
        """In the stream's thread."""
        match event:
            case schemas.SnapshotEvent(status=status, mine=mine):
                self._show_message(status.message)
                self._show_models()
                self._remember(mine)
            case schemas.ModelsEvent() | schemas.WaitsEvent():
                self._show_models()
            case schemas.SlotEvent(slot=slot, why=why):
                if why:
                    self._left[slot.model] = why
                self._show_models()
            case schemas_room.MessageEvent(message=message):
                self._show_message(message)
            case schemas.JobEvent(job=job) if job.mine and job.images and not self._follows(job):
                self._remember([job])

    def _show_message(self, message: schemas_room.Message | None) -> None:
        self._banner = message.text if message else ""

    def _follows(self, job: schemas.Job) -> bool:
        """Whether the job is this studio's own, whose pictures come with its thread."""
        return self._handle is not None and self._handle.id == job.id

    def _show_models(self) -> None:
        models = self._client.events.models()
        if models:
            self._models = [model_choice(model) for model in models]
            self._standings = {
                model.id: model_standing(model, self._left.get(model.id, "")) for model in models
            }

    # the history

    def _later(self, task: Any, *args: Any) -> None:
        """Done by the one thread that fetches, after what was asked for before."""

        def run() -> None:
            try:
                task(*args)
            except ClientClosed:
                pass
            except ClientError as problem:
                self._show_error(problem.title, problem.message)
            except Exception as fault:  # of ours; its future is nobody's to ask
                self._faults.say(fault)

        with suppress(RuntimeError):  # closed meanwhile
            self._fetcher.submit(run)

    def _recall(self) -> None:
        """What this notebook made before, also with earlier kernels; what the room is told."""
        with suppress(ClientError):  # nobody asked
            self._show_message(self._client.status().status.message)
        self._remember([handle.job for handle in self._client.jobs()])

    def _remember(self, jobs: list[schemas.Job]) -> None:
        if self._past.learn(jobs):
            self._history = [_listed(entry) for entry in self._past.entries()]
            self._later(self._show_faces)

    def _show_faces(self) -> None:
        """My last picture of each model stands for it."""
        last = self._past.last_of_models()
        faces = dict(self._faces)
        for model in (choice["id"] for choice in self._models):
            if model in last:
                with suppress(ClientError):  # nobody asked for it
                    faces[model] = self._past.thumbnail(last[model].key)
        self._faces = faces

    def _recall_picture(self, key: str) -> None:
        self._shown = [_shown(key, self._past.image(key), self._past.went_on(key))]

    def _send_thumbnail(self, key: str) -> None:
        with suppress(ClientError):  # no longer kept: a click on it will say so
            self.send({"thumbnail": key, "data": self._past.thumbnail(key)})


def _listed(entry: Entry) -> dict[str, str]:
    return {"key": entry.key, "words": entry.words}


def _opened(shown: dict[str, Any]) -> Image.Image:
    return Image.open(BytesIO(shown["png"]))


def _shown(key: str, image: GeneratedImage, went_on: str) -> dict[str, Any]:
    made = {**image.metadata, "code": as_code(image.metadata), "went_on": went_on}
    return {"key": key, "png": image.png_bytes, "made": made}
