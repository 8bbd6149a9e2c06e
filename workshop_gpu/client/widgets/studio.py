"""`wg.Studio()`: prompt, model, options, progress and picture in one widget.

Three threads meet here. The kernel's main thread (or a subshell) handles what the browser
sends; the stream's thread brings changes of the catalogue; one thread per job follows it. The
browser writes the options and never the results, the threads write the results and never the
options, so that no trait has two writers.
"""

import threading
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from PIL import Image

from workshop_gpu.api import schemas
from workshop_gpu.client.asking import pick_model
from workshop_gpu.client.client import Client
from workshop_gpu.client.errors import BadRequest, ClientError, JobCancelled
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.job_handle import JobHandle
from workshop_gpu.client.session import current
from workshop_gpu.client.widgets.choices import as_code, model_choice
from workshop_gpu.client.words import Progress, describe

_HERE = Path(__file__).parent
_THUMBNAIL_PX = 96
_STRIP_LENGTH = 24


class Studio(anywidget.AnyWidget):
    """Make pictures by hand. Every option is a trait: set it, read it, observe it.

    `seed` None draws a new one each time; `steps`, `guidance`, `width` and `height` None take
    the model's default. `images` are the pictures made so far, `images[-1]` the last one.
    Observers of `images` run in a thread of their own.
    """

    _esm = _HERE / "studio.js"
    _css = _HERE / "studio.css"

    prompt = traitlets.Unicode("").tag(sync=True)
    negative_prompt = traitlets.Unicode("").tag(sync=True)
    model = traitlets.Unicode("").tag(sync=True)
    seed = traitlets.Int(None, allow_none=True, min=0).tag(sync=True)
    steps = traitlets.Int(None, allow_none=True, min=1).tag(sync=True)
    guidance = traitlets.Float(None, allow_none=True, min=0.0).tag(sync=True)
    width = traitlets.Int(None, allow_none=True, min=1).tag(sync=True)
    height = traitlets.Int(None, allow_none=True, min=1).tag(sync=True)

    images = traitlets.List(trait=traitlets.Instance(GeneratedImage))

    _models = traitlets.List(trait=traitlets.Dict()).tag(sync=True)
    _job = traitlets.Dict().tag(sync=True)
    """The job's id and what happens with it in words; empty before the first one."""
    _preview = traitlets.Unicode("").tag(sync=True)
    _picture = traitlets.Bytes(b"").tag(sync=True)
    _made = traitlets.Dict().tag(sync=True)
    _strip = traitlets.List(trait=traitlets.Dict()).tag(sync=True)
    _error = traitlets.Dict().tag(sync=True)

    def __init__(self, client: Client | None = None, **options: Any) -> None:
        self._client = client or current()
        self._lock = threading.Lock()
        self._handle: JobHandle | None = None
        self._thread: threading.Thread | None = None
        models = list(self._client.models())
        self._known = {model.id for model in models}
        if not options.get("model"):
            options["model"] = pick_model(models)
        super().__init__(_models=[model_choice(model) for model in models], **options)
        self.on_msg(self._on_message)
        self._unsubscribe = self._client.events.subscribe(self._on_event)

    def generate(self) -> JobHandle:
        """Submit a job with the present options, as the button does; the picture shows up here.

        Raises what `Client.submit` raises, and BadRequest while another job of this studio runs.
        """
        with self._lock:
            if self._handle is not None and not self._handle.job.state.ended:
                raise BadRequest(
                    "invalid_request",
                    "this studio is making a picture already. Wait for it, or cancel it.",
                )
            self._error = {}
            handle = self._client.submit(
                self.prompt,
                self.model,
                negative_prompt=self.negative_prompt,
                seed=self.seed,
                steps=self.steps,
                guidance=self.guidance,
                size=self._size(),
            )
            self._handle = handle
        self._preview = ""
        self._show(Progress(handle.job))
        self._thread = threading.Thread(target=self._follow, args=(handle,), daemon=True)
        self._thread.name = f"workshop-gpu-studio-{handle.id}"
        self._thread.start()
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
        super().close()

    @traitlets.validate("model")
    def _check_model(self, proposal: Any) -> str:
        model = str(proposal["value"])
        if model not in self._known:
            offered = ", ".join(sorted(self._known)) or "none"
            raise traitlets.TraitError(f'There is no model "{model}". Offered here: {offered}.')
        return model

    @traitlets.observe("model")
    def _take_the_models_defaults(self, change: Any) -> None:
        """Twenty steps are right for one model and a waste for another."""
        if change["old"] and change["old"] != change["new"]:
            self.steps = self.guidance = self.width = self.height = None

    def _size(self) -> tuple[int, int] | None:
        if self.width is None and self.height is None:
            return None
        own = (model["defaults"] for model in self._models if model["id"] == self.model)
        defaults: dict[str, Any] = next(own, {})
        width = self.width or int(defaults.get("width", self.height or 0))
        height = self.height or int(defaults.get("height", self.width or 0))
        return width, height

    def _on_message(self, _: Any, content: Any, __: Any) -> None:
        """Wishes of the browser."""
        wish = content.get("wish") if isinstance(content, dict) else None
        try:
            if wish == "generate":
                self.generate()
            elif wish == "cancel":
                self.cancel()
            elif wish == "show":
                self._show_picture(self.images[int(content.get("index", -1))])
        except ClientError as problem:
            self._show_error(problem)
        except IndexError:
            return

    def _on_event(self, event: schemas.StreamEvent) -> None:
        """In the stream's thread: the catalogue may have changed."""
        if isinstance(event, schemas.SnapshotEvent | schemas.ModelsEvent | schemas.SlotEvent):
            self._show_models()

    def _show_models(self) -> None:
        models = self._client.events.models()
        if models:
            self._known = {model.id for model in models}
            self._models = [model_choice(model) for model in models]

    def _follow(self, handle: JobHandle) -> None:
        """In a thread of the job's own: show it until it ends."""
        try:
            made = handle.wait(watch=self._show)
            for image in made:
                self._show_picture(image)
            self._strip = [*self._strip, *self._thumbnails(made)][-_STRIP_LENGTH:]
            self.images = [*self.images, *made]
        except JobCancelled:
            pass  # the person did it, and the words say it
        except ClientError as problem:
            self._show_error(problem)
        finally:
            self._preview = ""
            self._show(Progress(handle.job))

    def _show(self, progress: Progress) -> None:
        words = describe(progress)
        job = progress.job
        if progress.preview is not None and not job.state.ended:
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

    def _show_picture(self, image: GeneratedImage) -> None:
        made = image.metadata
        self._made = {**made, "code": as_code(made)}
        self._picture = image.png_bytes

    def _thumbnails(self, images: list[GeneratedImage]) -> list[dict[str, Any]]:
        first = len(self.images)
        return [
            {
                "index": first + i,
                "data": _thumbnail(image),
                "words": f"{image.metadata.get('prompt', '')} (seed {image.metadata.get('seed')})",
            }
            for i, image in enumerate(images)
        ]

    def _show_error(self, problem: ClientError) -> None:
        self._error = {"title": problem.title, "message": problem.message}

    def __repr__(self) -> str:
        return f"<Studio model={self.model!r} prompt={self.prompt!r} images={len(self.images)}>"


def _thumbnail(image: Image.Image) -> str:
    small = image.convert("RGB")
    small.thumbnail((_THUMBNAIL_PX, _THUMBNAIL_PX))
    buffer = BytesIO()
    small.save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + b64encode(buffer.getvalue()).decode("ascii")
