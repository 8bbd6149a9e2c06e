"""What went wrong with a model's files: instructors read where, everybody else what."""

import pytest

from tests.host.fake_catalogue import FakeCatalogue
from tests.host.journals import an_entry
from tests.host.test_records import view as job_view
from workshop_gpu.api.discretion import discreet, without_paths
from workshop_gpu.api.views import Viewer, Views
from workshop_gpu.conductor import effects
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.states import JobState, SlotState
from workshop_gpu.host.devices import DeviceConfig
from workshop_gpu.host.journal_records import record_of
from workshop_gpu.host.news import NewsItem
from workshop_gpu.host.records import Participant
from workshop_gpu.host.runtime import Runtime, RuntimeSettings
from workshop_gpu.host.supervisor import WorkerEnd

FOLDER = "/srv/models/secret"
BROKEN = ErrorReport(
    "load_failed", f"{FOLDER}/unet/model.safetensors is damaged.", {"log": f"{FOLDER}/a.py:3"}
)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("/srv/models/a/unet.safetensors is damaged", "unet.safetensors is damaged"),
        ('"/srv/models/a": no such folder', '"a": no such folder'),
        (
            "cannot be used (/home/x/journal.sqlite3: full).",
            "cannot be used (journal.sqlite3: full).",
        ),
        (
            "see https://example.org/deep/page for more",
            "see https://example.org/deep/page for more",
        ),
        ("step 3/28, 1 and/or 2, text/html", "step 3/28, 1 and/or 2, text/html"),
    ],
)
def test_of_a_path_its_last_name_is_left(said: str, read: str) -> None:
    assert without_paths(said) == read


def test_an_errors_facts_name_no_folder_either() -> None:
    assert discreet(BROKEN).message == "model.safetensors is damaged."
    assert discreet(BROKEN).facts == {"log": "a.py:3"}


def viewers(runtime: Runtime) -> dict[str, Views]:
    who = {
        "instructor": Viewer(Participant("user:t", "t"), admin=True, base_url="/"),
        "page": Viewer(Participant("user:p", "p"), admin=False, base_url="/"),
        "kernel": Viewer(Participant("kernel-b", "b", "b"), admin=False, base_url="/"),
        "owner": Viewer(Participant("kernel-ada", "ada", "kernel-ada"), admin=False, base_url="/"),
    }
    return {name: Views(runtime, viewer) for name, viewer in who.items()}


@pytest.fixture
def seen(tmp_path) -> dict[str, Views]:
    catalogue = FakeCatalogue()
    catalogue.problems = (f"{FOLDER}/models.toml, line 3: no such model",)
    return viewers(Runtime(RuntimeSettings(devices=(), data_folder=tmp_path), catalogue))


def test_only_instructors_read_of_the_servers_folders(seen: dict[str, Views]) -> None:
    slot = effects.SlotView("cpu:0", "shapes", SlotState.FAILED, 1, 0, 0, 0, 0, False, 0.0, BROKEN)
    entries = [
        effects.AnnounceSlot(slot, 0, f"{FOLDER} changed"),
        effects.Notice(f"{FOLDER} is gone"),
        NewsItem(1.0, "load_failed", f"shapes could not be loaded: {FOLDER}/a is damaged"),
    ]
    for who, views in seen.items():
        told = [str(views.event(entry)) for entry in entries] + views.problems()
        assert all((FOLDER in each) == (who == "instructor") for each in told), (who, told)


def test_the_status_says_why_a_gpu_was_given_up_and_how_often_it_is_tried_again(tmp_path) -> None:
    card = DeviceConfig("cuda:0", "A card", "GPU-1", 0)
    runtime = Runtime(RuntimeSettings(devices=(card,), data_folder=tmp_path), FakeCatalogue())
    end = WorkerEnd(f"the driver reported Xid 79; see {FOLDER}/worker.log", given_up=True)
    runtime._on_worker_end(card, end)
    for who, views in viewers(runtime).items():
        status = views.status()
        (device,) = status.devices
        log = f"{FOLDER}/worker.log" if who == "instructor" else "worker.log"
        why = f"the driver reported Xid 79; see {log}"
        assert (device.state, device.reason, device.retry_s) == ("lost", why, 60.0)
        assert status.news[0].text == (
            f"cuda:0 cannot be used ({why}); it is tried again every 60 s"
        )


def test_a_jobs_error_names_no_folder_to_its_owner(seen: dict[str, Views]) -> None:
    record = record_of(an_entry(1, state=JobState.FAILED, error=BROKEN))
    assert FOLDER not in str(seen["owner"].job(record).error)
    assert seen["instructor"].job(record).error == BROKEN


def test_a_kernel_does_not_learn_the_ids_of_others(seen: dict[str, Views]) -> None:
    record = record_of(an_entry(1, state=JobState.RUNNING))
    record.view = job_view(record.id, JobState.RUNNING)
    shown = {who: views.job(record).kernel for who, views in seen.items()}
    assert shown["kernel"] is None
    assert {shown[who] for who in ("instructor", "page", "owner")} == {"kernel-ada"}
