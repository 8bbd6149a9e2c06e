"""The one client that `wg.generate` and its kin share, made on first use."""

import threading

from workshop_gpu.client.asking import Size
from workshop_gpu.client.client import Client
from workshop_gpu.client.errors import ClientError
from workshop_gpu.client.holds import TTL_S, HeldModel
from workshop_gpu.client.http import Http
from workshop_gpu.client.images import GeneratedImage, Source
from workshop_gpu.client.instructor import Instructor
from workshop_gpu.client.job_handle import JobHandle
from workshop_gpu.client.reservations import Reserved
from workshop_gpu.client.room import Room
from workshop_gpu.client.tables import ModelTable, StatusView


class _Shared:
    """Holds the client; two threads that need it first get the same."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self.lock = threading.Lock()


_shared = _Shared()


def current() -> Client:
    """The shared client; raises NoServer where no server is found."""
    with _shared.lock:
        if _shared.client is None or _shared.client.closed:
            _shared.client = Client()
        return _shared.client


def _current_http() -> Http:
    return current().admin.http()


admin = Instructor(_current_http)
"""What an instructor does, with whichever client is the shared one then."""

room = Room(_current_http)
"""What people in the room say to each other, and what happened there."""


def connect(url: str = "", token: str = "") -> Client:
    """Use this server from now on; without arguments, look for it anew. Returns the client.

    What an earlier client made (a studio, a hold) stays with its own server.
    """
    client = Client(url, token)
    try:
        client.me()  # a wrong address or token must show here, not at the first picture
    except ClientError:
        client.close()
        raise
    with _shared.lock:
        known = _shared.client
        if known is not None and not known.closed and known.server == client.server:
            client.close()
            return known
        _shared.client = client
        return client


def generate(
    prompt: str,
    model: str | None = None,
    *,
    seed: int | None = None,
    steps: int | None = None,
    size: Size = None,
    guidance: float | None = None,
    negative_prompt: str = "",
    images: int = 1,
    progress: bool = True,
) -> GeneratedImage | list[GeneratedImage]:
    """Make a picture, or a list of them where `images` is more than 1.

    `model` None takes one that is ready. `seed` None draws one. `size` is pixels: 512,
    (768, 512) or "768x512". What is None takes the model's default. `progress` shows a bar.
    Ctrl-C, or the notebook's stop button, cancels the job.
    """
    return current().generate(
        prompt,
        model,
        seed=seed,
        steps=steps,
        size=size,
        guidance=guidance,
        negative_prompt=negative_prompt,
        images=images,
        progress=progress,
    )


def again(image: Source, *, progress: bool = True) -> GeneratedImage:
    """Make the same picture again from its metadata (an image, a file or PNG bytes)."""
    return current().again(image, progress=progress)


def hold(model: str, ttl_s: float = TTL_S) -> HeldModel:
    """Keep a model on its GPU: `with wg.hold("shapes"): ...`."""
    return current().hold(model, ttl_s)


def reserve(
    gb: float,
    gpu: int | str | None = None,
    *,
    timeout_s: float | None = None,
    progress: bool = True,
) -> Reserved:
    """GPU memory for this kernel's own code: `with wg.reserve(gb=8, gpu=0): ...`.

    It waits in the queue until there is room; Ctrl-C gives up. It ends with the block, or with
    the kernel. `gpu` is a number or an id such as "cuda:0"; None takes whichever is best.
    """
    return current().reserve(gb, gpu, timeout_s=timeout_s, progress=progress)


def reserve_all(
    gpu: int | str | None = None, *, timeout_s: float | None = None, progress: bool = True
) -> Reserved:
    """A whole GPU for this kernel's own code: its jobs finish, its models leave."""
    return current().reserve_all(gpu, timeout_s=timeout_s, progress=progress)


def models() -> ModelTable:
    """The models that the instructor offers, as a table."""
    return current().models()


def status() -> StatusView:
    """The GPUs, who holds their memory, who runs and who waits, as tables."""
    return current().status()


def jobs() -> list[JobHandle]:
    """My jobs, newest first, also those of this notebook's earlier kernels."""
    return current().jobs()


def job(job_id: str) -> JobHandle:
    """A job of mine by its id: `wg.job(id).wait()` waits for its pictures and gives them."""
    return current().job(job_id)
