"""Jobs of several people in one batch: the real server and a real worker."""

from io import BytesIO

from PIL import Image

from tests.api.people import Person
from tests.serverprocess import ServerProcess
from workshop_gpu.worker.images import read_record

SAME = {"width": 64, "height": 64, "steps": 3}


def png(person: Person, job: dict[str, object]) -> bytes:
    ended = person.ended(str(job["id"]))
    assert ended["state"] == "done", ended
    return person.http.get(f"api/jobs/{job['id']}/images/0").raise_for_status().content


def pixels(image: bytes) -> bytes:
    return Image.open(BytesIO(image)).convert("RGB").tobytes()


def test_two_peoples_waiting_jobs_are_drawn_together_and_each_picture_can_be_made_again() -> None:
    with (
        ServerProcess(devices=("cpu:200MB",)) as server,
        Person(server, "ann") as ann,
        Person(server, "bob") as bob,
    ):
        png(ann, ann.submit(**SAME))  # alone: a batch is tried once that is measured
        with ann.paused():
            first = ann.submit(prompt="a red circle", seed=1, **SAME)
            second = bob.submit(prompt="a blue star", seed=2, **SAME)
        for person, job, prompt in ((ann, first, "a red circle"), (bob, second, "a blue star")):
            image = png(person, job)
            made = read_record(image).params
            assert (made.prompt, made.batch) == (prompt, 2)
            again = person.submit(
                prompt=made.prompt, seed=made.seed, batch=made.batch, place=made.place, **SAME
            )
            assert pixels(png(person, again)) == pixels(image)
