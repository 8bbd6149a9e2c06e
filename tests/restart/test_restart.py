"""A real server is killed in the middle of its work, and starts again on the same folder."""

import hashlib
import socket
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.api.kernels import RunningKernel
from tests.api.people import Person
from tests.serverprocess import ServerProcess

LONG = {"model": "shapes", "steps": 20}
SHORT = {"model": "shapes", "steps": 3}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that comes back at the same address."""
    process = ServerProcess(folder=tmp_path, port=free_port())
    with process:
        yield process


def pixels(person: Person, job: dict[str, Any]) -> list[str]:
    """What the images of a job are, bit for bit but for the job's id in their records."""
    found = []
    for image in job["images"]:
        png = person.http.get(str(person.http.base_url.join(image["url"]))).raise_for_status()
        found.append(hashlib.sha256(Image.open(BytesIO(png.content)).tobytes()).hexdigest())
    return found


def running(person: Person, job: str) -> None:
    """Waits until the worker has done a step of the job."""
    person.until(
        lambda event: (
            event["event"] == "job" and event["job"]["id"] == job and event["job"]["step"] > 0
        )
    )


def test_nothing_that_was_accepted_is_lost_when_the_server_is_killed(
    server: ServerProcess,
) -> None:
    people = [Person(server, name) for name in ("ada", "bob", "cleo", "dan")]
    ada, bob, _, dan = people
    done = ada.ended(ada.submit(model="shapes", steps=2, seed=1)["id"])
    picture = pixels(ada, done)
    first = ada.submit(**LONG, seed=2, images=2)
    running(ada, first["id"])
    waiting = [each.submit(**SHORT, seed=3) for each in (dan, bob, people[2])]
    unwanted = bob.submit(**SHORT, seed=6)
    cancelled = bob.http.delete(f"api/jobs/{unwanted['id']}").json()
    hold = bob.hold("shapes")
    with RunningKernel(server, "faces.ipynb") as own:
        with own.person() as notebook:
            asked = notebook.submit(**SHORT, seed=3)
        server.kill()
        server.start()

    status = ada.get("api/status")
    order = [job["id"] for job in status["running"] + status["waiting"]]
    assert order == [job["id"] for job in (first, *waiting, asked)]
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
    again = [ada.submit(**LONG, seed=3)["id"], ada.submit(**SHORT, seed=3)["id"]]
    assert pixels(ada, both)[1:] == pixels(ada, ada.ended(again[0]))
    assert pixels(dan, drawn) == pixels(ada, ada.ended(again[1]))
    for each in people:
        each.http.close()
