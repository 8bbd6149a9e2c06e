"""A server that lives in this process: REST answers by hand, events by hand."""

import json
import queue
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import httpx
import msgspec
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from workshop_gpu.api import schemas
from workshop_gpu.client import Client
from workshop_gpu.conductor.states import JobState, SlotState

URL = "http://workshop.test/base/"
WAIT_S = 120.0
"""For what comes at once, even on a busy machine."""
LIMITS = {"max_pixels": 65536, "max_steps": 100, "max_images": 8, "size_multiple": 16}
DEFAULTS: dict[str, int | float] = {"steps": 20, "guidance": 3.0, "width": 128, "height": 128}


def a_model(model_id: str = "shapes", **changes: Any) -> schemas.Model:
    model = schemas.Model(
        id=model_id,
        title=model_id.title(),
        description="Draws shapes.",
        kind="diffusers",
        enabled=True,
        reason="",
        state="absent",
        problem="",
        bytes=9_000_000,
        done_bytes=0,
        total_bytes=0,
        defaults=DEFAULTS,
        limits=LIMITS,
        pinned=False,
        slots=[],
    )
    return msgspec.structs.replace(model, **changes)


def a_slot(state: str, model: str = "shapes", device: str = "cpu:0", **changes: Any) -> Any:
    slot = schemas.Slot(
        device=device,
        model=model,
        state=SlotState(state),
        bytes=9_000_000,
        done_bytes=0,
        total_bytes=9_000_000,
        running_jobs=0,
        holds=0,
        pinned=False,
        idle_s=0.0,
    )
    return msgspec.structs.replace(slot, **changes)


def a_job(state: str = "queued", job_id: str = "1" * 32, **changes: Any) -> schemas.Job:
    job = schemas.Job(
        id=job_id,
        state=JobState(state),
        model="shapes",
        participant="me",
        mine=True,
        position=1 if state == "queued" else 0,
        expected_wait_s=None,
        waiting_for="",
        step=0,
        steps=20,
        device=None,
        submitted_at=0.0,
        started_at=None,
        ended_at=None,
        params={"prompt": "a red circle", "seed": 7, "width": 128, "height": 128},
    )
    if state == "done":
        url = f"/base/workshop-gpu/api/jobs/{job_id}/images/0"
        job = msgspec.structs.replace(job, images=[schemas.ImageInfo(0, 7, url)], step=20)
    return msgspec.structs.replace(job, **changes)


def a_png(
    prompt: str = "a red circle",
    seed: int = 7,
    side: int = 32,
    about: dict[str, object] | None = None,
    **others: object,
) -> bytes:
    """A PNG as the worker writes it; `about` is in its record beside the parameters."""
    params: dict[str, object] = {
        "prompt": prompt,
        "negative_prompt": "",
        "seed": seed,
        "steps": 20,
        "images": 1,
    }
    params |= {"guidance": 3.0, "width": side, "height": side} | others
    record = {"model": "shapes", "params": params, "versions": {"torch": "2"}, "device": "cpu"}
    record |= about or {}
    info = PngInfo()
    info.add_text("workshop_gpu", json.dumps(record))
    info.add_text("parameters", prompt)
    buffer = BytesIO()
    Image.new("RGB", (side, side), (200, 30, 30)).save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


class Events(httpx.SyncByteStream):
    """One open event stream: what is put in comes out at the reader's side."""

    def __init__(self) -> None:
        self._pieces: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()

    def send(self, event: schemas.StreamEvent, event_id: str = "a-1") -> None:
        tag = event.__struct_config__.tag
        data = msgspec.json.encode(event).decode()
        self.send_raw(f"id: {event_id}\nevent: {tag}\ndata: {data}\n\n".encode())

    def send_raw(self, piece: bytes) -> None:
        self._pieces.put(piece)

    def end(self, error: Exception | None = None) -> None:
        self._pieces.put(error)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            piece = self._pieces.get(timeout=WAIT_S)
            if piece is None:
                return
            if isinstance(piece, Exception):
                raise piece
            yield piece


class FakeServer:
    """Answers from `answers` ("POST jobs" → a struct, bytes, a (status, error) pair, or a function
    that gives one of these); `requests` are those that came. Each request for events puts a new
    stream into `streams`, unless `stream_status` is an error's."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "GET me": schemas.Me("me", "me", None, False),
            "GET models": schemas.ModelList([a_model()]),
        }
        self.requests: list[tuple[str, Any]] = []
        self.streams: queue.SimpleQueue[tuple[Events, httpx.Request]] = queue.SimpleQueue()
        self.opened: list[Events] = []
        self.stream_status = 200

    def client(self) -> Client:
        return Client(URL, "secret", transport=httpx.MockTransport(self.handle))

    def next_stream(self) -> tuple[Events, httpx.Request]:
        return self.streams.get(timeout=WAIT_S)

    def close(self) -> None:
        for stream in self.opened:
            stream.end()

    @staticmethod
    def wait_until_heard(client: Client) -> None:
        """Until the client's stream has brought something: from then on it does not ask."""
        seen = -1
        while not client.events.live:
            seen = client.events.wait(seen, WAIT_S)

    def handle(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/base/workshop-gpu/api/")
        if path == "events":
            return self._events(request)
        name = f"{request.method} {path}"
        body = request.content or None
        if request.headers.get("Content-Type") == "application/json":
            body = json.loads(request.content)
        self.requests.append((name, body))
        return self._response(self.answers.get(name, (404, "not_found")))

    def bodies(self, name: str) -> list[Any]:
        return [body for asked, body in self.requests if asked == name]

    def _events(self, request: httpx.Request) -> httpx.Response:
        if self.stream_status != 200:
            error = {"error": {"kind": "server_error", "message": "no stream today"}}
            return httpx.Response(self.stream_status, json=error)
        stream = Events()
        self.opened.append(stream)
        self.streams.put((stream, request))
        return httpx.Response(200, stream=stream)

    def _response(self, answer: Any) -> httpx.Response:
        match answer:
            case tuple((status, kind)):
                return httpx.Response(status, json={"error": {"kind": kind, "message": f"{kind}!"}})
            case bytes():
                return httpx.Response(200, content=answer)
            case None:
                return httpx.Response(204)
            case Exception():
                raise answer
            case Callable():
                return self._response(answer())
            case _:
                return httpx.Response(200, content=msgspec.json.encode(answer))
