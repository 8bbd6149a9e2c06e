"""What is told to Jupyter's event system, checked against the schemas by the system itself."""

import asyncio
import json
import logging
from io import StringIO

from jupyter_events import EventLogger

from workshop_gpu.api.jupyter_events import SCHEMAS, JupyterEvents, schema_id
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.states import JobState
from workshop_gpu.host.audit import AuditLine
from workshop_gpu.host.happenings import Evicted, JobEnded, Loaded, LoadFailed, Told

ERROR = ErrorReport("load_failed", "The file is damaged.")
HAPPENINGS = (
    Loaded("cuda:0", "shapes", 9_000_000, 1.5, "resident"),
    Loaded("cuda:0", "shapes", 9_000_000, None, ""),
    LoadFailed("cuda:0", "shapes", ERROR),
    Evicted("cuda:0", "shapes", 9_000_000, "not used for 60 s", "", 60.0),
    JobEnded("1", "k1", "shapes", "cuda:0", JobState.DONE, None, 0.5, 2.0),
    JobEnded("2", "k1", "shapes", None, JobState.CANCELLED, None, None, 0.0),
    JobEnded("3", "k1", "shapes", "cuda:0", JobState.FAILED, ERROR, 0.5, 2.0),
)


def written(tell):
    """What a handler of the event system gets."""
    text = StringIO()
    logger = EventLogger(handlers=[logging.StreamHandler(text)])

    async def scenario():
        tell(JupyterEvents(logger))

    asyncio.run(scenario())
    return [json.loads(line) for line in text.getvalue().splitlines()]


def test_each_happening_fits_its_schema():
    def tell(events):
        for happening in HAPPENINGS:
            events.note(happening)
        events.audited(AuditLine(1.0, "Zoe", "user:zoe", "paused the queue", "", {"reason": "x"}))

    lines = written(tell)
    assert len(lines) == len(HAPPENINGS) + 1
    assert {line["__schema__"] for line in lines} == {
        schema_id(path.stem) for path in SCHEMAS.glob("*.yaml")
    }
    assert [line["outcome"] for line in lines if "outcome" in line] == [
        "loaded", "loaded", "failed", "done", "cancelled", "failed",
    ]  # fmt: skip
    assert lines[2]["error"] == "load_failed"


def test_what_is_no_event_is_not_told():
    assert written(lambda events: events.note(Told("Weights of shapes measured"))) == []


def test_two_servers_of_one_process_register_the_schemas_once():
    logger = EventLogger()
    JupyterEvents(logger)
    JupyterEvents(logger)
    assert len([name for name in logger.schemas.schema_ids if "workshop_gpu" in name]) == 4


def test_a_handler_that_fails_stops_nothing():
    class Fails(logging.Handler):
        def emit(self, record):
            raise OSError("the disk is full")

    logger = EventLogger(handlers=[Fails()])
    JupyterEvents(logger).note(HAPPENINGS[0])
