"""A real server with a worker on a real card: what ends the worker, or takes its memory, costs no
job and changes no picture.

`pytest -m gpu tests/faults/test_on_a_card.py`; the first card must be free but for this.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.api.people import Person
from tests.faults.pictures import Pixels, pixels
from tests.serverprocess import ROOT, ServerProcess
from tests.worker.test_worker_gpu import MEBIBYTE, crowded_card
from tests.worker.worker_host import FIRST_CARD
from workshop_gpu.client.images import read_metadata

pytestmark = pytest.mark.gpu

POINTS = Path(__file__).parent / "points"
MODELS = """
[[model]]
id = "shapes"
shipped = "shapes"
limits = { max_pixels = 4194304, max_side = 2048 }
"""
# A picture drawn with compiled blocks differs in its last bits from one drawn without.
ARGS = ("--WorkshopGPU.spare_worker=on", "--WorkshopGPU.compile_blocks=off")
STEPS = 90
WISH = {"model": "shapes", "prompt": "a red circle on a blue background", "seed": 1, "steps": STEPS}
Seen = dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA card")
    path = [str(POINTS), str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    process = ServerProcess((f"cuda:{FIRST_CARD}",), ARGS, env=env)
    file = process.folder / "models.toml"
    file.write_text(MODELS)
    process.write_config(f"c.WorkshopGPU.models_file = {str(file)!r}")
    with process:
        yield process


@pytest.fixture
def ann(server: ServerProcess) -> Iterator[Person]:
    with Person(server, "ann") as person:
        yield person


def file_of(person: Person, job: str) -> bytes:
    assert person.ended(job)["state"] == "done", person.get(f"api/jobs/{job}")["error"]
    return person.http.get(f"api/jobs/{job}/images/0").raise_for_status().content


def picture_of(person: Person, job: str) -> Pixels:
    return pixels(file_of(person, job))


@pytest.fixture(scope="module")
def undisturbed(server: ServerProcess) -> Pixels:
    """The picture before anything happens; resident, as a card with room for it has it."""
    with Person(server, "ref") as person:
        return picture_of(person, person.submit(**WISH)["id"])


def worker_of(server: ServerProcess) -> psutil.Process:
    """The card's: the one that was not started to stand by, or no longer does."""
    with Person(server, "looker") as person:
        while person.get("api/status")["devices"][0]["state"] != "ready":
            person.until(lambda event: event["event"] == "device")
    children = psutil.Process(server.pid).children()
    workers = [each for each in children if "workshop_gpu.worker" in each.cmdline()]
    return min(workers, key=lambda each: each.create_time())


def logs_of(server: ServerProcess) -> list[Path]:
    """The server's, and those of its workers."""
    workers = server.folder / "data" / "workshop_gpu" / "logs"
    return [server.log, *workers.glob("*.log")]


def submit_and_wait_until(person: Person, happened: Callable[[Seen], bool]) -> str:
    """The job; the stream is open before it is asked for, so that nothing is missed."""
    events = person.events()
    next(events)
    job: str = person.submit(**WISH)["id"]
    while not happened(next(events)[1]):
        pass
    return job


def step_of(event: Seen) -> int:
    return int(event["job"]["step"]) if event["event"] == "job" and event["job"]["mine"] else 0


def loads(event: Seen) -> bool:
    return event["event"] == "slot" and event["slot"]["state"] == "loading"


def replaced(server: ServerProcess, person: Person, worker: psutil.Process) -> None:
    """Waits until another worker stands ready."""
    while worker_of(server).pid == worker.pid:
        person.until(lambda event: event["event"] == "device")


@pytest.mark.parametrize("step", [1, STEPS // 2, STEPS], ids=["encoded", "denoising", "decoding"])
def test_a_worker_that_is_killed_while_it_draws_costs_no_job_and_changes_no_picture(
    server: ServerProcess, ann: Person, undisturbed: Pixels, step: int
) -> None:
    worker = worker_of(server)
    job = submit_and_wait_until(ann, lambda event: step_of(event) >= step)
    worker.kill()
    assert (picture_of(ann, job) == undisturbed).all()
    replaced(server, ann, worker)


def test_a_worker_that_is_killed_while_it_loads_costs_no_job_and_changes_no_picture(
    server: ServerProcess, ann: Person, undisturbed: Pixels
) -> None:
    worker = worker_of(server)
    ann.evict("shapes")
    job = submit_and_wait_until(ann, loads)
    worker.kill()
    assert (picture_of(ann, job) == undisturbed).all()
    replaced(server, ann, worker)


def test_after_an_illegal_access_a_new_worker_draws_what_the_old_one_would_have(
    server: ServerProcess, ann: Person, undisturbed: Pixels
) -> None:
    worker = worker_of(server)
    job = submit_and_wait_until(ann, lambda event: step_of(event) >= 1)
    worker.send_signal(signal.SIGUSR2)
    assert (picture_of(ann, job) == undisturbed).all()
    # Where the job was quicker than the fault, this one meets it.
    assert (picture_of(ann, ann.submit(**WISH)["id"]) == undisturbed).all()
    replaced(server, ann, worker)
    said = [file.read_text(errors="replace") for file in logs_of(server)]
    assert any("illegal memory access" in text for text in said), said


def test_out_of_memory_is_told_or_gone_around_and_the_next_picture_is_as_before(
    server: ServerProcess, ann: Person, undisturbed: Pixels
) -> None:
    large = {**WISH, "steps": 1, "width": 2048, "height": 2048}
    before = file_of(ann, ann.submit(**large)["id"])  # its kernels are loaded now
    worker = worker_of(server)
    with crowded_card(free_bytes=64 * MEBIBYTE):
        job: str = ann.submit(**large)["id"]
        ann.until(lambda event: any(_has_met_the_crowd(each, job) for each in jobs_in(event)))
    error = ann.ended(job)["error"]
    assert error is None or error["kind"] == "out_of_memory"
    assert (picture_of(ann, ann.submit(**WISH)["id"]) == undisturbed).all()
    # A VAE that works in tiles since then draws another picture; as before it draws the same.
    after = file_of(ann, ann.submit(**large)["id"])
    manners = [read_metadata(file)["manner"] for file in (before, after)]
    assert manners[0] == "exact"
    assert manners[1] != "exact" or (pixels(after) == pixels(before)).all()
    assert worker_of(server).pid == worker.pid, "running out of memory ends no worker"


def jobs_in(event: Seen) -> list[Seen]:
    return event.get("mine", [event["job"]] if event["event"] == "job" else [])


def _has_met_the_crowd(job: Seen, wanted: str) -> bool:
    """It ended there, or waits until the others' memory comes back."""
    ended = job["state"] in ("done", "failed")
    return job["id"] == wanted and (ended or job["waiting_for"] == "foreign")


def test_at_the_end_everything_can_leave_the_card(server: ServerProcess, ann: Person) -> None:
    ann.evict("shapes")
    (device,) = ann.get("api/status")["devices"]
    ours = [each for each in device["holders"] if each["kind"] in ("weights", "working", "freeing")]
    assert (device["state"], ours) == ("ready", [])
