"""models.toml through a running server: what it offers, mistakes, and models of a hub."""

import shutil

import pytest

from tests.api.people import Person
from tests.catalogue.hub_server import hub_server
from tests.serverprocess import ServerProcess
from workshop_gpu.api.discretion import without_paths
from workshop_gpu.catalogue.shipped import ASSETS

TURBO_FOLDER = ASSETS / "shapes-dit-turbo"
ENTRY = """
[[model]]
id = "{id}"
source = {source}
defaults = {{ steps = 4, guidance = 1.0, width = 128, height = 128 }}
{more}
"""


def entry(model, source, more=""):
    return ENTRY.format(id=model, source=source, more=more)


def served(place, **env):
    """A server whose models.toml lies in the folder."""
    option = f"--WorkshopGPU.models_file={place / 'models.toml'}"
    return ServerProcess(folder=place, args=(option,), env=env)


def folder(path):
    return f'{{ folder = "{path}" }}'


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A server with a models.toml of one model."""
    place = tmp_path_factory.mktemp("taught")
    (place / "models.toml").write_text(entry("fast", folder(TURBO_FOLDER)))
    with served(place) as process, Person(process, "teacher") as teacher:
        yield place / "models.toml", teacher


def models(event):
    return event.get("models") or []


def rewrite(file, text):
    """At once, so that nobody reads half of it."""
    fresh = file.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(file)


def until_offered(teacher, *ids):
    return teacher.until(lambda event: [model["id"] for model in models(event)] == list(ids))


def test_the_file_decides_what_is_offered_and_is_read_again_when_it_changes(taught):
    file, teacher = taught
    until_offered(teacher, "fast")
    rewrite(file, entry("fast", folder(TURBO_FOLDER)) + entry("other", folder(ASSETS / "shapes")))
    until_offered(teacher, "fast", "other")
    job = teacher.submit(model="other", steps=1)
    assert teacher.ended(job["id"])["state"] == "done"


BARE = """
[[model]]
id = "bare"
source = {source}
"""


def test_a_bare_folder_draws_at_its_own_size_and_refuses_a_larger_one_before_anything_moves(taught):
    file, teacher = taught
    rewrite(file, BARE.format(source=folder(TURBO_FOLDER)))
    told = until_offered(teacher, "bare")
    offered = told["models"][0]
    assert (offered["defaults"]["width"], offered["defaults"]["height"]) == (128, 128)
    assert offered["limits"]["max_side"] == 128
    body = {"model": "bare", "prompt": "a red ring", "steps": 1, "width": 1024}
    status, error = teacher.refused("POST", "api/jobs", json=body)
    assert (status, error["kind"]) == (400, "invalid_request")
    assert "1024 pixels are too many; bare draws at most 128 a side" in error["message"]
    assert "bare" not in teacher.slots()
    job = teacher.submit(model="bare", steps=1)
    assert (job["params"]["width"], job["params"]["height"]) == (128, 128)
    assert teacher.ended(job["id"])["state"] == "done"


def test_a_mistake_is_told_with_its_line_and_the_old_catalogue_stays(taught):
    file, teacher = taught
    rewrite(file, entry("fast", folder(TURBO_FOLDER)))
    until_offered(teacher, "fast")
    rewrite(file, entry("fast", folder(TURBO_FOLDER)) + entry("x", folder("y"), "stepps = 4"))
    told = teacher.until(lambda event: event.get("problems"))
    assert [model["id"] for model in told["models"]] == ["fast"]
    [problem] = told["problems"]
    assert "stepps" in problem
    assert "line " in problem
    assert teacher.get("api/status")["problems"] == [problem]
    assert teacher.ended(teacher.submit(model="fast")["id"])["state"] == "done"


def test_a_disabled_model_is_refused_with_the_instructors_reason(taught):
    file, teacher = taught
    off = entry("fast", folder(TURBO_FOLDER), 'enabled = false\nreason = "after lunch"')
    rewrite(file, off)
    teacher.until(lambda event: [m for m in models(event) if not m["enabled"]])
    status, error = teacher.refused("POST", "api/jobs", json={"model": "fast", "prompt": "a star"})
    assert (status, error["kind"], error["reason"]) == (409, "model_disabled", "after lunch")
    assert "after lunch" in error["message"]


@pytest.mark.parametrize("fault", ["missing folder", "pickle checkpoint", "half a file"])
def test_a_model_that_cannot_be_used_is_shown_with_the_reason_and_refused(taught, tmp_path, fault):
    file, teacher = taught
    broken = tmp_path / "broken"
    if fault != "missing folder":
        shutil.copytree(TURBO_FOLDER, broken)
        weights = broken / "transformer" / "diffusion_pytorch_model.safetensors"
        if fault == "half a file":
            weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
        else:
            weights.rename(weights.with_suffix(".bin"))
    rewrite(file, entry("fast", folder(TURBO_FOLDER)) + entry("broken", folder(broken)))
    shown = until_offered(teacher, "fast", "broken")["models"][1]
    assert shown["state"] == "unavailable"
    assert shown["problem"]
    status, error = teacher.refused(
        "POST", "api/jobs", json={"model": "broken", "prompt": "a star"}
    )
    assert (status, error["kind"]) == (503, "model_unavailable")
    assert without_paths(shown["problem"]) in error["message"]
    assert teacher.ended(teacher.submit(model="fast")["id"])["state"] == "done"


def test_a_model_of_a_hub_is_downloaded_for_all_who_wait_while_others_draw(tmp_path):
    (tmp_path / "models.toml").write_text(
        entry("fast", folder(TURBO_FOLDER)) + entry("far", '{ hub = "org/model" }')
    )
    patient = {
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DOWNLOAD_TIMEOUT": "240",
        "HF_HUB_ETAG_TIMEOUT": "240",
    }
    with (
        hub_server(TURBO_FOLDER) as hub,
        served(tmp_path, HF_ENDPOINT=hub.address, **patient) as process,
        Person(process, "ann") as ann,
        Person(process, "ben") as ben,
    ):
        stream = ann.events()
        next(stream)
        hub.gives.clear()
        jobs = [(who, who.submit(model="far")) for who in (ann, ben)]
        assert {job["waiting_for"] for _, job in jobs} == {"download"}
        hub.gives.set()
        assert ann.ended(ann.submit(model="fast")["id"])["state"] == "done"
        assert [who.ended(job["id"])["state"] for who, job in jobs] == ["done", "done"]
        weights = [name for name in hub.fetched if name.endswith(".safetensors")]
        assert len(weights) == len(set(weights)) > 3
        seen = set()
        for _, event in stream:
            seen |= {(m["id"], m["state"]) for m in models(event)}
            if ("far", "downloading") in seen:
                break


def test_a_hub_that_is_not_reached_fails_the_job_with_that_reason(tmp_path):
    (tmp_path / "models.toml").write_text(entry("far", '{ hub = "org/model" }'))
    with served(tmp_path) as process, Person(process, "ann") as ann:
        job = ann.ended(ann.submit(model="far")["id"])
        assert job["state"] == "failed"
        assert job["error"]["kind"] == "model_unavailable"
        assert "HF_HUB_OFFLINE" in job["error"]["message"]
