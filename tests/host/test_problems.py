"""What of the server does not work, and who hears of it."""

import asyncio
from types import SimpleNamespace

from tests.host.test_runtime import runtime_with
from workshop_gpu.api.views import Viewer, Views
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.host.log_entries import ProblemsChanged
from workshop_gpu.host.problems import Problems
from workshop_gpu.host.records import Participant


def test_a_change_is_told_once():
    told = []
    disk, card = SimpleNamespace(problem=""), SimpleNamespace(problem="")
    problems = Problems((disk, card), lambda: told.append(problems.now))
    problems.look()
    assert told == []
    card.problem = "The card is silent."
    problems.look()
    problems.look()
    disk.problem = "The disk is full."
    problems.look()
    disk.problem = card.problem = ""
    problems.look()
    assert told == [
        ("The card is silent.",),
        ("The disk is full.", "The card is silent."),
        (),
    ]


def test_the_server_looks_by_itself_and_an_instructor_is_told(tmp_path):
    runtime = runtime_with(tmp_path, Catalogue(None))
    viewer = Viewer(Participant("user:zoe", "Zoe"), True, "/")

    async def scenario():
        async with runtime.running():
            await runtime.catalogue_read()
            position = runtime.events.position
            runtime.spare.problem = "There is no spare worker."
            while not (found := changes(runtime, position)):
                await runtime.events.grown(runtime.events.position)
            return Views(runtime, viewer).event(found[0])

    event = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert event.problems == ["There is no spare worker."]
    assert event.models


def changes(runtime, position):
    entries = [entry for _, entry in runtime.events.after(position)]
    return [entry for entry in entries if isinstance(entry, ProblemsChanged)]
