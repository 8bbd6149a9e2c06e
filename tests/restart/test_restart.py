"""A real server is killed in the middle of its work, and starts again on the same folder."""

import hashlib
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.api.kernels import RunningKernel
from tests.api.people import TURBO, WAIT_S, Person
from tests.api.test_inputs import a_png
from tests.serverprocess import ServerProcess
from workshop_gpu.client import Client
from workshop_gpu.client.words import Progress, describe

LONG = {"model": "shapes", "steps": 50}
SHORT = {"model": "shapes", "steps": 3}


def free_port() -> int:
    """Not one of those that the system gives to whoever asks for any: while the server is away,
    another process would get it."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that comes back at the same address."""
    # Each picture is drawn alone, so that it does not matter who waits together with whom.
    args = ("--WorkshopGPU.batch_limit=1",)
    process = ServerProcess(folder=tmp_path, port=free_port(), args=args)
    with process:
        yield process


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def digest(image: Image.Image) -> str:
    return hashlib.sha256(image.tobytes()).hexdigest()


def pixels(person: Person, job: dict[str, Any]) -> list[str]:
    """What the images of a job are, bit for bit but for the job's id in their records."""
    found = []
    for image in job["images"]:
        png = person.http.get(str(person.http.base_url.join(image["url"]))).raise_for_status()
        found.append(digest(Image.open(BytesIO(png.content))))
    return found


def test_nothing_that_was_accepted_is_lost_when_the_server_is_killed(
    server: ServerProcess, stack: ExitStack
) -> None:
    told: list[Progress] = []
    client = stack.enter_context(Client(server.url, server.token))
    thread = stack.enter_context(ThreadPoolExecutor(1))
    names = ("ada", "bob", "cleo", "dan")
    ada, bob, cleo, dan = (stack.enter_context(Person(server, name)) for name in names)
    done = ada.ended(ada.submit(model="shapes", steps=2, seed=1)["id"])
    picture = pixels(ada, done)
    start = ada.http.post("api/inputs", content=a_png()).raise_for_status().json()
    begun = {**LONG, "start_image": start["id"]}
    # What takes long comes before the job that must still run when the server is killed.
    with RunningKernel(server, "faces.ipynb") as own, own.person() as notebook:
        first = ada.submit(**begun, seed=2, images=2)
        ada.begun(first["id"])
        waiting = [each.submit(**SHORT, seed=3) for each in (dan, bob, cleo)]
        unwanted = bob.submit(**SHORT, seed=6)
        cancelled = bob.http.delete(f"api/jobs/{unwanted['id']}").json()
        hold = bob.hold("shapes")
        asked = notebook.submit(**SHORT, seed=3)
        handle = client.submit(TURBO["prompt"], "shapes", steps=3, seed=3)
        picture_of_client = thread.submit(handle.wait, 2 * WAIT_S, told.append)
        server.kill()
        server.start()

    status = ada.get("api/status")
    order = [job["id"] for job in status["running"] + status["waiting"]]
    assert order == [job["id"] for job in (first, *waiting, asked)] + [handle.id]
    assert ada.get(f"api/jobs/{done['id']}") == done
    assert pixels(ada, done) == picture
    assert bob.get(f"api/jobs/{cancelled['id']}") == cancelled
    assert cancelled["state"] == "cancelled"
    assert bob.refused("PUT", f"api/holds/{hold['id']}", json={})[0] == 404
    both = ada.ended(first["id"])
    drawn = dan.ended(waiting[0]["id"])
    assert bob.ended(waiting[1]["id"])["state"] == "done"
    assert [job["id"] for job in ada.get("api/jobs")["jobs"]] == [first["id"], done["id"]]
    with RunningKernel(server, "faces.ipynb") as reopened, reopened.person() as notebook:
        assert reopened.id != own.id
        assert notebook.ended(asked["id"])["state"] == "done"
        assert pixels(notebook, notebook.get(f"api/jobs/{asked['id']}")) == pixels(dan, drawn)
    # Bit for bit what an undisturbed server draws.
    again = [ada.submit(**begun, seed=3)["id"], ada.submit(**SHORT, seed=3)["id"]]
    assert pixels(ada, both)[1:] == pixels(ada, ada.ended(again[0]))
    assert pixels(dan, drawn) == pixels(ada, ada.ended(again[1]))
    (shown,) = picture_of_client.result(WAIT_S)
    assert digest(shown) == pixels(dan, drawn)[0]
    assert any("does not answer; trying again" in describe(progress).text for progress in told)


def test_a_job_that_runs_whenever_the_server_dies_is_failed_and_named_and_the_others_go_on(
    server: ServerProcess, stack: ExitStack
) -> None:
    ada, bob = (stack.enter_context(Person(server, name)) for name in ("ada", "bob"))
    guilty = ada.submit(**LONG, images=4)["id"]
    innocent = bob.submit(**SHORT)["id"]
    for _ in range(2):
        ada.begun(guilty)
        bob.submit(**SHORT)  # once that is noted, the journal has all that was before it
        server.kill()
        server.start()
    error = ada.get(f"api/jobs/{guilty}")["error"]
    assert error["kind"] == "server_lost"
    assert "ended the server twice" in error["message"]
    assert bob.ended(innocent)["state"] == "done"
