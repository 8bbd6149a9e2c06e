"""Jobs and accounts of the server's last life come back."""

import random

import pytest

from tests.conductor.staging import MEGAPIXEL, Stage, model, stage
from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.accounts import Accounts
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.conductor.states import JobState, Priority

PEOPLE = ("ada", "bob", "cleo", "dan", "eve")
MODELS = (model("a"), model("b"), model("c"))


class Book:
    """What a shell writes down of a stage: who asked for what, and when."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.stage = stage(settings=self.settings)
        self.asked: dict[str, tuple[events.JobSubmitted, float]] = {}

    def submit(self, *args: object, **options: object) -> str:
        request = self.stage.job_submitted(*args, **options)  # type: ignore[arg-type]
        self.stage.tell(request)
        self.asked[request.job] = (request, self.stage.now)
        return request.job

    def states(self) -> dict[str, JobState]:
        return {view.job: view.state for view in self.stage.conductor.snapshot(0.0).jobs}

    def next_life(self, *models: events.ModelFacts) -> Stage:
        """The server dies and starts again; its clock begins anew."""
        old, states = self.stage, self.states()
        restored = [
            events.RestoredJob(request, old.now - at, states[job] is JobState.RUNNING)
            for job, (request, at) in self.asked.items()
            if job in states
        ]
        new = Stage(Conductor(self.settings, ("gpu0",), old.conductor.learned()), now=1000.0)
        new.tell(events.CatalogueChanged(models or MODELS))
        new.tell(events.JobsRestored(tuple(restored), old.conductor.accounts()))
        return new


def waiting(stage: Stage) -> list[str]:
    jobs = stage.conductor.snapshot(stage.now).jobs
    return [view.job for view in jobs if view.state is JobState.QUEUED]


@pytest.mark.parametrize("seed", range(60))
def test_the_order_is_that_which_the_death_of_the_worker_alone_would_have_left(seed: int) -> None:
    chance = random.Random(seed)
    book = Book()
    for _ in range(chance.randrange(5, 60)):
        book.stage.now += chance.random() * 5
        who = chance.choice(PEOPLE)
        queued = [job for job in waiting(book.stage) if book.asked[job][0].participant == who]
        if chance.random() < 0.6 and len(queued) < book.settings.queue_limit:
            pixels = MEGAPIXEL * chance.choice((1, 2, 4))
            book.submit(
                chance.choice("abc"), who, pixels, chance.choice((Priority.NORMAL, Priority.LOW))
            )
        elif book.stage.orders:
            book.stage.answer(which=chance.choice(book.stage.orders_of()))
    new = book.next_life()
    # The worker's death is the same to the jobs, but that the server lives on.
    book.stage.die()
    assert waiting(new) == waiting(book.stage)
    assert len(book.states()) == len(waiting(new))


def test_a_job_that_ran_is_not_paid_for_twice() -> None:
    book = Book()
    book.stage.load("a")
    job = book.submit("a", "ada")
    assert book.states()[job] is JobState.RUNNING
    used_s = book.stage.conductor.accounts().used_s
    new = book.next_life()
    assert new.conductor.accounts().used_s["ada"] == used_s["ada"]
    new.ready()
    new.settle()
    assert new.conductor.accounts().used_s["ada"] > used_s["ada"]


def test_what_was_accepted_is_not_refused_though_it_is_more_than_may_wait() -> None:
    book = Book()
    book.stage.load("a")
    jobs = [book.submit("a", "ada") for _ in range(4)]
    new = book.next_life(model("a", enabled=False))
    assert waiting(new) == jobs
    assert new.refused(book.stage.job_submitted("a")).kind == "model_disabled"
    new.ready()
    new.settle()
    assert {new.state(job) for job in jobs} == {"done"}


def test_a_job_whose_model_is_gone_fails_with_that_reason() -> None:
    book = Book()
    lost, kept = book.submit("b", "ada"), book.submit("a", "ada")
    new = book.next_life(model("a"))
    assert (new.state(lost), new.job(lost).error.kind) == ("failed", "model_unknown")  # type: ignore[union-attr]
    assert waiting(new) == [kept]
    new.ready()
    new.settle()
    assert new.state(kept) == "done"
    assert any(isinstance(each, effects.AnnounceJob) and each.job.job == lost for each in new.said)


def test_a_job_comes_back_once() -> None:
    book = Book()
    job = book.submit("a", "ada")
    request, _ = book.asked[job]
    new = book.next_life()
    new.tell(events.JobsRestored((events.RestoredJob(request, 5.0),), Accounts()))
    assert waiting(new) == [job]
    assert new.refused(request).kind == "invalid_request"


def test_the_time_that_a_job_has_waited_counts_for_its_class() -> None:
    book = Book(Settings(rise_s=100.0))
    book.stage.load("a")
    book.submit("a", "cleo")
    low = book.submit("a", "ada", priority=Priority.LOW)
    book.stage.now += 150.0
    normal = book.submit("a", "bob")
    new = book.next_life()
    new.submit("a", "dan")
    assert waiting(new)[1:3] in ([low, normal], [normal, low])
