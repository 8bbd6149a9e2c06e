"""`Client`: one server, as a notebook or a script sees it."""

import os
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import httpx
import msgspec
from jupyter_core.paths import jupyter_runtime_dir

from workshop_gpu.api import schemas
from workshop_gpu.api.schemas_plans import PlanView
from workshop_gpu.client.asking import (
    Size,
    check_number,
    check_prompt,
    parse_size,
    pick_model,
    request_again,
)
from workshop_gpu.client.connection import Server, find_server, server_at
from workshop_gpu.client.errors import ClientError, ConnectionLost, InputUnknown, Interrupted
from workshop_gpu.client.events import EventStream, pause_s
from workshop_gpu.client.grid import Grid
from workshop_gpu.client.grid_plan import Cell, Values, plan_grid
from workshop_gpu.client.holds import HeldModel
from workshop_gpu.client.http import Http
from workshop_gpu.client.images import GeneratedImage, Source, read_metadata
from workshop_gpu.client.inputs import Beginning, Picture, Sent, beginning
from workshop_gpu.client.instructor import Instructor
from workshop_gpu.client.job_handle import JobHandle
from workshop_gpu.client.lease import TTL_S
from workshop_gpu.client.loras import Loras, parse_loras, with_loras
from workshop_gpu.client.plans import PlanTable
from workshop_gpu.client.progress import waiting_line
from workshop_gpu.client.reservations import Reserved, find_device, parse_gb
from workshop_gpu.client.room import Room
from workshop_gpu.client.tables import ModelTable, StatusView
from workshop_gpu.client.waiting import await_submission, await_with_bar, wait_with_bar

T = TypeVar("T")

RESEND_S = 30.0
"""For how long a request is sent again to a server that does not answer any more."""


class Client:
    """Talks to one server. Without arguments it finds the server of this notebook.

    `transport` stands in for the network in tests. May be used from several threads.
    """

    def __init__(
        self, url: str = "", token: str = "", *, transport: httpx.BaseTransport | None = None
    ) -> None:
        server = server_at(url, token) if url else find_here()
        self._http = Http(server, transport, None if url else find_here)
        self.events = EventStream(self._http)
        self.admin = Instructor(lambda: self._http)
        self.room = Room(lambda: self._http)
        self._sent = Sent(self._upload)

    @property
    def server(self) -> Server:
        return self._http.server

    @property
    def closed(self) -> bool:
        return self._http.closed

    def me(self) -> schemas.Me:
        """Who the server thinks I am."""
        return self._http.get("me", schemas.Me)

    def rename(self, name: str) -> schemas.Me:
        """Set the name that others see."""
        return self._http.put("me", schemas.Me, schemas.NameRequest(name))

    def status(self) -> StatusView:
        """The GPUs, who holds their memory, who runs and who waits."""
        return StatusView(self._http.get("status", schemas.Status))

    def models(self) -> ModelTable:
        """The models that the instructor offers."""
        answer = self._http.get("models", schemas.ModelList)
        return ModelTable(answer.models, answer.problems)

    def explain(
        self,
        model: str,
        width: int | None = None,
        height: int | None = None,
        *,
        steps: int | None = None,
        batch: int | None = None,
        gpu: int | str | None = None,
    ) -> PlanTable:
        """How the model would be placed on a GPU for such a picture: each rung of the ladder with
        its GB and expected seconds, and why it is chosen or not. `batch` is how many pictures are
        drawn at once (None: one). What else is None takes the model's default; `gpu` None the one
        that has the model, else the emptiest. Raises BadRequest for what the model cannot do."""
        device = None if gpu is None else find_device(gpu, self.status().devices)
        given = {
            "width": width,
            "height": height,
            "steps": steps,
            "batch": batch,
            "device": device,
        }
        query = urlencode({name: value for name, value in given.items() if value is not None})
        path = f"models/{quote(check_prompt(model, 'model'), safe='')}/plan"
        return PlanTable(self._http.get(f"{path}?{query}" if query else path, PlanView))

    def load(self, model: str) -> schemas.Model:
        """Load a model before anybody asks for it (needs the admin right)."""
        return self.admin.load(model)

    def evict(self, model: str) -> schemas.Model:
        """Make an idle model leave its GPU (needs the admin right)."""
        return self.admin.evict(model)

    def hold(self, model: str, ttl_s: float = TTL_S) -> HeldModel:
        """Keep a model on its GPU; `ttl_s` is how long it may go without renewal."""
        return HeldModel(self._http, model, ttl_s)

    def reserve(
        self,
        gb: float,
        gpu: int | str | None = None,
        *,
        timeout_s: float | None = None,
        progress: bool = True,
    ) -> Reserved:
        """Wait until `gb` GB of a GPU's memory are set aside for this kernel's own code.

        `gpu` is a number or an id such as "cuda:0"; None takes whichever is best. `progress`
        shows the wait. Ctrl-C, or the notebook's stop button, gives it up. Raises NeverFits for
        more than a GPU has, and TimedOut after `timeout_s` seconds (None: never).
        """
        return self._reserve(parse_gb(gb), gpu, timeout_s, progress)

    def reserve_all(
        self, gpu: int | str | None = None, *, timeout_s: float | None = None, progress: bool = True
    ) -> Reserved:
        """Wait until a whole GPU is set aside: its jobs finish, its models leave."""
        return self._reserve(None, gpu, timeout_s, progress)

    def _reserve(
        self,
        size_bytes: int | None,
        gpu: int | str | None,
        timeout_s: float | None,
        progress: bool,
    ) -> Reserved:
        device = None if gpu is None else find_device(gpu, self.status().devices)
        reserved = Reserved(self._http, size_bytes, device)
        try:
            with waiting_line(show=progress) as say:
                reserved.wait(self.events, say, timeout_s)
        except KeyboardInterrupt:
            reserved.drop()
            raise Interrupted("you no longer wait for GPU memory.") from None
        except BaseException:
            reserved.drop()
            raise
        return reserved

    def submit(
        self,
        prompt: str,
        model: str | None = None,
        *,
        seed: int | None = None,
        steps: int | None = None,
        size: Size = None,
        guidance: float | None = None,
        negative_prompt: str = "",
        images: int = 1,
        start_image: Picture | None = None,
        strength: float | None = None,
        mask: Picture | None = None,
        loras: Loras = None,
        batch: int = 1,
        place: int = 0,
        manner: str = "",
        compiled: bool | None = None,
        placement: str = "",
        profile: bool = False,
        priority: schemas.PriorityName = "normal",
    ) -> JobHandle:
        """Ask for pictures and return at once; the arguments are those of `generate`.

        `batch`, `place`, `manner` and `compiled`, from a picture's metadata, repeat one to its
        last bit.
        """
        width, height = parse_size(size)
        for name, value in (("seed", seed), ("steps", steps)):
            check_number(value, name)
        for number, name in ((images, "images"), (batch, "batch"), (place, "place")):
            check_number(number, name, optional=False)
        check_number(guidance, "guidance", whole=False)
        check_number(strength, "strength", whole=False)
        begins = beginning(start_image, mask)
        needed = "text" if start_image is None else "image" if mask is None else "mask"
        worn = parse_loras(loras)
        request = schemas.GenerateRequest(
            model=pick_model(with_loras(self.models(), worn), needed)
            if model is None
            else check_prompt(model, "model"),
            prompt=check_prompt(prompt),
            negative_prompt=check_prompt(negative_prompt, "negative_prompt"),
            seed=seed,
            steps=steps,
            guidance=guidance,
            width=width,
            height=height,
            images=images,
            batch=batch,
            place=place,
            manner=check_prompt(manner, "manner"),
            compiled=compiled,
            strength=strength,
            loras=worn,
            placement=check_prompt(placement, "placement"),
            profile=bool(profile),
            priority=priority,
            id=uuid.uuid4().hex,
        )
        return self._handle(request, begins)

    def _handle(self, request: schemas.GenerateRequest, begins: Beginning) -> JobHandle:
        self.events.start()
        try:
            job = self._send(request, begins)
        except InputUnknown:  # it was restarted meanwhile, or has not heard of them for long
            self._sent.forget()
            job = self._send(request, begins)
        return JobHandle(self._http, self.events, job)

    def _send(self, request: schemas.GenerateRequest, begins: Beginning) -> schemas.Job:
        if begins.start_image is not None:
            request = msgspec.structs.replace(
                request,
                start_image=self._sent.id_of(begins.start_image),
                mask=self._sent.id_of(begins.mask),
            )
        return self._patiently(lambda: self._http.post("jobs", schemas.Job, request))

    def _upload(self, content: bytes) -> None:
        self._patiently(lambda: self._http.upload("inputs", schemas.Input, content))

    def _patiently(self, send: Callable[[], T]) -> T:
        """Sent again where the answer was lost, or the server is just being restarted: jobs have
        their ids, so none is made twice. A server that never answered is not waited for."""
        deadline, failures = time.monotonic() + RESEND_S, 0
        while True:
            try:
                return send()
            except ConnectionLost:
                if not self._http.heard or time.monotonic() >= deadline:
                    raise
                failures += 1
                time.sleep(pause_s(failures))

    def generate(
        self,
        prompt: str,
        model: str | None = None,
        *,
        seed: int | None = None,
        steps: int | None = None,
        size: Size = None,
        guidance: float | None = None,
        negative_prompt: str = "",
        images: int = 1,
        start_image: Picture | None = None,
        strength: float | None = None,
        mask: Picture | None = None,
        loras: Loras = None,
        placement: str = "",
        profile: bool = False,
        priority: schemas.PriorityName = "normal",
        progress: bool = True,
    ) -> GeneratedImage | list[GeneratedImage]:
        """Make a picture, or a list of them where `images` is more than 1.

        `model` None takes one that is ready. `seed` None draws one. `size` is pixels: 512,
        (768, 512) or "768x512". What is None takes the model's default. `progress` shows a bar.
        Ctrl-C, or the notebook's stop button, cancels the job.

        `start_image` (an image, a file or its bytes, an array) is what to begin with, and
        `strength`, above 0 and at most 1, how much of it is drawn anew (default 0.7). `mask`, as
        large as the start image, is white where it is drawn anew; the rest stays (default strength
        1). `loras` are put on, each with its scale from -2 to 2: {"ink": 0.8}, "ink:0.8", or "ink"
        for its default; `wg.models()` says which there are.

        `placement`, for instructors: the rung on which the model has to be, such as "all-streamed".
        With `profile` it is measured how each step's time is spent: `image.profile`. Such a job is
        drawn alone. `priority` "low" or "batch" lets everybody else's jobs go first; "high" and
        "urgent" are for instructors.
        """
        handle = self.submit(
            prompt,
            model,
            seed=seed,
            steps=steps,
            size=size,
            guidance=guidance,
            negative_prompt=negative_prompt,
            images=images,
            start_image=start_image,
            strength=strength,
            mask=mask,
            loras=loras,
            placement=placement,
            profile=profile,
            priority=priority,
        )
        made = wait_with_bar(handle, show=progress)
        return made[0] if images == 1 else made

    async def agenerate(
        self,
        prompt: str,
        model: str | None = None,
        *,
        seed: int | None = None,
        steps: int | None = None,
        size: Size = None,
        guidance: float | None = None,
        negative_prompt: str = "",
        images: int = 1,
        start_image: Picture | None = None,
        strength: float | None = None,
        mask: Picture | None = None,
        loras: Loras = None,
        placement: str = "",
        profile: bool = False,
        priority: schemas.PriorityName = "normal",
        progress: bool = True,
    ) -> GeneratedImage | list[GeneratedImage]:
        """As `generate`, while the event loop goes on: `image = await wg.agenerate("a star")`.

        Several may wait at once, up to the limit of waiting jobs. Cancelling the task cancels the
        job.
        """
        submit = partial(
            self.submit,
            prompt,
            model,
            seed=seed,
            steps=steps,
            size=size,
            guidance=guidance,
            negative_prompt=negative_prompt,
            images=images,
            start_image=start_image,
            strength=strength,
            mask=mask,
            loras=loras,
            placement=placement,
            profile=profile,
            priority=priority,
        )
        made = await await_with_bar(await await_submission(submit), show=progress)
        return made[0] if images == 1 else made

    def again(
        self,
        image: Source,
        *,
        exactly: bool = True,
        start_image: Picture | None = None,
        mask: Picture | None = None,
        progress: bool = True,
    ) -> GeneratedImage:
        """Make the same picture again from its metadata (an image, a file or PNG bytes).

        One that was drawn with VAE tiling, attention slicing, text encoders on the CPU or compiled
        blocks, or without, is drawn so again, since that changes its last bits; not `exactly`, it
        is drawn as the model is placed now. Raises NotRepeatable where the server cannot draw it
        so. Where compiled blocks are not ready yet, its metadata says that it was drawn without.

        One that began with a picture needs that one: give `start_image` (and `mask`) where the
        server does not have it any more.
        """
        request = request_again(read_metadata(image), exactly)
        handle = self._handle(request, beginning(start_image, mask))
        return wait_with_bar(handle, show=progress)[0]

    def grid(
        self,
        prompts: Values,
        models: Values = None,
        seeds: Values = None,
        *,
        steps: Values = None,
        guidance: Values = None,
        strength: Values = None,
        loras: Values = None,
        size: Size = None,
        negative_prompt: str = "",
        start_image: Picture | None = None,
        mask: Picture | None = None,
        priority: schemas.PriorityName = "normal",
        progress: bool = True,
    ) -> Grid:
        """A contact sheet of every combination: one value or a list for each of the first seven.

        It fills in as jobs finish, with as many waiting at once as the server lets one have.
        Without `seeds` all pictures have the same one, which is drawn. `loras` are written as
        "ink:0.8", or "ink:0.8, grain:0.5" for several at once. The rest goes to `generate`.
        Ctrl-C, or the notebook's stop button, cancels what is not made yet; what is made stays.
        """
        usual = ""
        if models is None:
            needed = "text" if start_image is None else "image" if mask is None else "mask"
            usual = pick_model(list(self.models()), needed)
        others = {"steps": steps, "guidance": guidance, "strength": strength, "loras": loras}
        grid = Grid(plan_grid(prompts, models, seeds, others, usual))

        def submit(cell: Cell) -> JobHandle:
            values: dict[str, Any] = dict(cell.values)
            return self.submit(
                values.pop("prompt"),
                values.pop("model"),
                **values,
                size=size,
                negative_prompt=negative_prompt,
                start_image=start_image,
                mask=mask,
                priority=priority,
            )

        grid.fill(submit, progress=progress)
        return grid

    def jobs(self) -> list[JobHandle]:
        """My jobs, newest first."""
        answer = self._http.get("jobs", schemas.JobList)
        return [JobHandle(self._http, self.events, job) for job in answer.jobs]

    def job(self, job_id: str) -> JobHandle:
        """A job of mine by its id, for example after a lost connection."""
        job = self._http.get(f"jobs/{job_id}", schemas.Job)
        return JobHandle(self._http, self.events, job)

    def sent_picture(self, input_id: str) -> bytes:
        """A picture that a job began with, by its id in the job's metadata: the file as sent."""
        return self._http.download(f"inputs/{quote(input_id, safe='')}")

    def close(self) -> None:
        """End the event stream and the connections."""
        self.events.close()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Workshop GPU client of {self.server.url} ({self.server.found_by})>"


def find_here(answers: Callable[[Server], bool] | None = None) -> Server:
    """The server of this process, by its environment and the runtime folder."""
    return find_server(os.environ, Path(jupyter_runtime_dir()), answers or _answers)


def _answers(server: Server) -> bool:
    http = Http(server)
    try:
        http.get("me", schemas.Me)
    except ClientError:
        return False
    finally:
        http.close()
    return True
