"""`wg.Studio()` without a browser: its traits, and what the browser may send."""

import queue
import re
import threading
from typing import Any

import pytest
import traitlets
from msgspec.structs import replace

from tests.client.fakes import WAIT_S, FakeServer, a_job, a_model, a_png, a_slot
from tests.client.test_mirror import a_snapshot
from workshop_gpu.api import schemas, schemas_room
from workshop_gpu.client import Client, Studio
from workshop_gpu.client.errors import BadRequest, ModelNotOffered
from workshop_gpu.client.widgets.choices import as_code, size_choices, wait_words
from workshop_gpu.client.widgets.scripts import script

JOB = "1" * 32


@pytest.fixture(autouse=True)
def _answers(fake: FakeServer) -> None:
    models = [a_model("shapes"), a_model("other"), a_model("off", enabled=False, reason="later")]
    fake.answers["GET jobs"] = schemas.JobList([])
    fake.answers |= {
        "GET models": schemas.ModelList(models),
        "POST jobs": a_job(),
        f"GET jobs/{JOB}/images/0": a_png(),
        f"DELETE jobs/{JOB}": a_job("cancelled"),
    }


@pytest.fixture
def studio(client: Client) -> Studio:
    return Studio(client)


def wait_for(studio: Studio, name: str, condition: Any) -> None:
    """Wait until the trait meets the condition."""
    met = threading.Event()

    def look(change: Any) -> None:
        if condition(change["new"]):
            met.set()

    studio.observe(look, name)
    if condition(getattr(studio, name)):
        met.set()
    assert met.wait(WAIT_S), f"{name} is {getattr(studio, name)!r}"


def click(studio: Studio, **wish: Any) -> None:
    studio._on_message(studio, {"wish": "generate"} | wish, [])


def wait_for_bodies(fake: FakeServer, number: int) -> list[Any]:
    """Wait until so many jobs were asked for."""
    asked = threading.Event()

    def answer() -> Any:
        asked.set() if len(fake.bodies("POST jobs")) >= number else None
        return a_job()

    fake.answers["POST jobs"] = answer
    if len(fake.bodies("POST jobs")) < number:
        assert asked.wait(WAIT_S)
    return fake.bodies("POST jobs")


def test_a_click_makes_a_picture_that_is_a_trait(studio: Studio, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    studio.prompt, studio.seed, studio.steps, studio.count = "a red circle", 7, 10, 2
    click(studio)
    (body,) = wait_for_bodies(fake, 1)
    assert (body["prompt"], body["seed"], body["steps"]) == ("a red circle", 7, 10)
    assert (body["model"], body["width"], body["images"]) == ("shapes", None, 2)
    stream.send(schemas.JobEvent(a_job("running", step=5)))
    wait_for(studio, "_job", lambda job: job["text"] == "Step 5 of 20")
    stream.send(schemas.PreviewEvent(JOB, 5, 20, 0, "data:image/jpeg;base64,eA=="))
    wait_for(studio, "_preview", lambda data: data.startswith("data:"))
    stream.send(schemas.JobEvent(a_job("done", went_on="went on with VAE tiling")))
    wait_for(studio, "images", lambda images: len(images) == 1)
    wait_for(studio, "_job", lambda job: job["state"] == "done")
    assert studio.images[-1].seed == 7
    (shown,) = studio._shown
    assert (shown["key"], shown["png"]) == (f"{JOB}:0", a_png())
    assert shown["made"]["code"].startswith("wg.generate('a red circle', model='shapes'")
    assert shown["made"]["went_on"] == "went on with VAE tiling"
    assert [entry["key"] for entry in studio._history] == [f"{JOB}:0"]
    assert studio._preview == ""
    wait_for(studio, "_faces", lambda faces: "shapes" in faces)


def test_a_click_brings_what_was_chosen_just_before_it(studio: Studio, fake: FakeServer) -> None:
    chosen = {"model": "other", "prompt": "a star", "count": 4, "steps": 5, "seed": None}
    click(studio, options=chosen)
    (body,) = wait_for_bodies(fake, 1)
    assert {name: body[name] for name in ("model", "prompt", "steps", "seed")} | {
        "count": 4
    } == chosen
    assert (body["images"], studio.count) == (4, 4)


def test_a_second_click_while_a_picture_is_made_is_refused_in_words(
    studio: Studio, fake: FakeServer
) -> None:
    studio.generate()
    with pytest.raises(BadRequest, match="already"):
        studio.generate()
    click(studio)
    assert "already" in studio._error["message"]
    assert len(fake.bodies("POST jobs")) == 1


def test_the_servers_refusal_is_shown(studio: Studio, fake: FakeServer) -> None:
    fake.answers["POST jobs"] = (429, "queue_full")
    click(studio)
    wait_for(studio, "_error", bool)
    assert studio._error == {"title": "Too many waiting jobs", "message": "queue_full!"}
    wait_for(studio, "_job", lambda job: job["state"] == "failed")
    wait_for_bodies(fake, 1)
    click(studio)
    wait_for_bodies(fake, 2)
    assert studio._error == {}


def test_a_refusal_of_generate_is_raised_and_the_next_one_may_come(
    studio: Studio, fake: FakeServer
) -> None:
    fake.answers["POST jobs"] = (404, "model_unknown")
    with pytest.raises(ModelNotOffered):
        studio.generate()
    fake.answers["POST jobs"] = a_job()
    assert studio.generate().id == JOB


def test_a_fault_of_ours_is_said_and_the_next_click_may_come(
    studio: Studio, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(**_: Any) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(client, "submit", breaks)
    click(studio)
    wait_for(studio, "_job", lambda job: job["state"] == "failed")
    assert "KeyError('ours')" in studio._error["message"]
    assert not studio._busy


def test_an_observer_of_pictures_that_breaks_does_not_hide_that_the_job_is_done(
    studio: Studio, fake: FakeServer
) -> None:
    def breaks(_: Any) -> None:
        raise KeyError("an observer's")

    studio.observe(breaks, "images")
    stream, _ = fake.next_stream()
    click(studio)
    wait_for_bodies(fake, 1)
    stream.send(schemas.JobEvent(a_job("done")))
    wait_for(studio, "_job", lambda job: job["state"] == "done")
    assert "KeyError" in studio._error["message"]


def test_a_job_that_fails_says_why(studio: Studio, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    studio.generate()
    stream.send(schemas.JobEvent(a_job("failed")))
    wait_for(studio, "_error", bool)
    wait_for(studio, "_job", lambda job: job["state"] == "failed")


def test_cancel_by_message_reaches_the_server(studio: Studio, fake: FakeServer) -> None:
    studio._on_message(studio, {"wish": "cancel"}, [])
    studio.generate()
    wait_for(studio, "_job", lambda job: job.get("id") == JOB)
    studio._on_message(studio, {"wish": "cancel"}, [])
    assert f"DELETE jobs/{JOB}" in [name for name, _ in fake.requests]


def make_one(studio: Studio, fake: FakeServer, **made: int) -> None:
    """A finished picture on the stage."""
    stream, _ = fake.next_stream()
    fake.answers[f"GET jobs/{JOB}/images/0"] = a_png(**made)
    studio.prompt = "a red circle"
    studio.generate()
    stream.send(schemas.JobEvent(a_job("done")))
    wait_for(studio, "_job", lambda job: job["state"] == "done")


def test_again_takes_the_pictures_own_options_and_its_place_in_the_batch(
    studio: Studio, fake: FakeServer
) -> None:
    make_one(studio, fake, batch=4, place=2, manner="tiled")
    studio.prompt, studio.model, studio.steps = "something else", "other", 3
    click(studio, wish="again", key=f"{JOB}:0")
    body = wait_for_bodies(fake, 2)[-1]
    names = ("prompt", "model", "seed", "steps", "width", "batch", "place", "manner")
    asked = [body[name] for name in names]
    assert asked == ["a red circle", "shapes", 7, 20, 32, 4, 2, "tiled"]
    assert [studio.prompt, studio.model] == ["a red circle", "shapes"]
    assert [studio.seed, studio.count] == [7, 1]


def test_vary_keeps_all_but_the_seed(studio: Studio, fake: FakeServer) -> None:
    make_one(studio, fake, batch=4, place=2)
    click(studio, wish="vary", key=f"{JOB}:0")
    body = wait_for_bodies(fake, 2)[-1]
    asked = [body[name] for name in ("prompt", "seed", "batch", "place")]
    assert asked == ["a red circle", None, 1, 0]


def test_the_history_is_there_after_a_kernels_restart_and_pictures_are_fetched_when_looked_at(
    client: Client, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, newest = (
        a_job("done", digit * 32, ended_at=at, images=[_image(digit, 0), _image(digit, 1)])
        for digit, at in (("2", 5.0), ("3", 9.0))
    )
    old = replace(old, went_on="went on with VAE tiling")
    fake.answers["GET jobs"] = schemas.JobList([newest, old, a_job("failed", "4" * 32)])
    fake.answers["GET jobs/" + "2" * 32] = old
    fake.answers |= {f"GET jobs/{'2' * 32}/images/{i}": a_png(seed=7 + i) for i in (0, 1)}
    studio = Studio(client)
    wait_for(studio, "_history", lambda entries: len(entries) == 4)
    keys = [f"{'2' * 32}:0", f"{'2' * 32}:1", f"{'3' * 32}:0", f"{'3' * 32}:1"]
    assert [entry["key"] for entry in studio._history] == keys
    assert not [name for name, _ in fake.requests if "2" * 32 in name]
    sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
    monkeypatch.setattr(studio, "send", sent.put)
    click(studio, wish="thumbnails", keys=[keys[0]])
    told = [sent.get(timeout=WAIT_S) for _ in range(2)]
    assert {"heard": True} in told
    (small,) = (each for each in told if "thumbnail" in each)  # from another thread
    assert (small["thumbnail"], small["data"][:23]) == (keys[0], "data:image/jpeg;base64,")
    click(studio, wish="show", key=keys[1])
    wait_for(studio, "_shown", bool)
    made = studio._shown[0]["made"]
    assert (studio._shown[0]["key"], made["seed"]) == (keys[1], 8)
    assert made["went_on"] == "went on with VAE tiling"


def _image(digit: str, index: int) -> schemas.ImageInfo:
    url = f"/base/workshop-gpu/api/jobs/{digit * 32}/images/{index}"
    return schemas.ImageInfo(index, 7 + index, url)


def test_a_picture_that_is_no_longer_kept_says_so(studio: Studio, fake: FakeServer) -> None:
    click(studio, wish="show", key=f"{'9' * 32}:0")
    wait_for(studio, "_error", bool)


def test_pictures_of_other_cells_join_the_history(studio: Studio, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    stream.send(schemas.JobEvent(a_job("done", "5" * 32, mine=False)))
    stream.send(schemas.JobEvent(a_job("done", "6" * 32)))
    wait_for(studio, "_history", bool)
    assert [entry["key"] for entry in studio._history] == [f"{'6' * 32}:0"]


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {"wish": "fly"},
        {"wish": "show", "key": 5},
        {"wish": "again", "key": "nothing"},
        {"wish": "thumbnails", "keys": "all"},
    ],
)
def test_a_message_that_makes_no_sense_is_no_error(studio: Studio, content: Any) -> None:
    studio._on_message(studio, content, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", -1),
        ("seed", 2**53),
        ("seed", "x"),
        ("steps", 0),
        ("steps", 101),
        ("guidance", -1.0),
        ("guidance", float("nan")),
        ("width", 0),
        ("height", 100),
        ("count", 0),
        ("count", 9),
        ("prompt", 5),
        ("prompt", "x" * 10_000_000),
        ("model", "nothing"),
        ("images", ["no picture"]),
    ],
)
def test_nonsense_in_a_trait_is_refused(studio: Studio, name: str, value: Any) -> None:
    before = getattr(studio, name)
    with pytest.raises(traitlets.TraitError, match=name):
        setattr(studio, name, value)
    assert getattr(studio, name) == before


def test_nonsense_from_the_browser_is_said_there_and_taken_back(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(studio, "send_state", lambda key=None: sent.append(key))
    studio.set_state({"model": "gone", "steps": 5})
    assert 'There is no model "gone"' in studio._error["message"]
    assert (studio.model, studio.steps) == ("shapes", None)
    assert ["model", "steps"] in sent


def test_another_model_brings_its_own_defaults(studio: Studio) -> None:
    studio.steps, studio.width = 5, 64
    studio.model = "other"
    assert [studio.steps, studio.width] == [None, None]


def test_a_choice_that_comes_with_the_model_in_one_message_is_kept(studio: Studio) -> None:
    studio.steps = 7
    studio.set_state({"steps": 9, "model": "other", "width": None})
    assert (studio.model, studio.steps) == ("other", 9)


def test_the_instructors_message_is_a_banner(studio: Studio, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    stream.send(schemas_room.MessageEvent(schemas_room.Message("Lunch at <b>12</b>", "Ada", 1.0)))
    wait_for(studio, "_banner", lambda text: text == "Lunch at <b>12</b>")
    stream.send(schemas_room.MessageEvent(None))
    wait_for(studio, "_banner", lambda text: text == "")


def test_a_shipped_model_has_a_picture_before_anybody_made_one(studio: Studio) -> None:
    assert studio._faces["shapes"].startswith("data:image/jpeg;base64,")
    assert "other" not in studio._faces


def test_options_may_be_given_at_the_start(client: Client) -> None:
    studio = Studio(client, prompt="a star", model="other", steps=3)
    assert (studio.prompt, studio.model, studio.steps) == ("a star", "other", 3)


def test_the_model_menu_follows_the_stream(studio: Studio, fake: FakeServer) -> None:
    stream, _ = fake.next_stream()
    stream.send(a_snapshot(models=[a_model("shapes")]))
    stream.send(schemas.SlotEvent(a_slot("ready"), 0, ""))
    wait_for(studio, "_standings", lambda models: models["shapes"]["words"] == "ready on cpu:0")
    stream.send(schemas.WaitsEvent({"shapes": 30.0}))
    wait_for(studio, "_standings", lambda models: "about 30 s" in models["shapes"]["wait"])
    stream.send(schemas.SlotEvent(a_slot("leaving"), 0, "to make room for other"))
    stream.send(schemas.SlotEvent(a_slot("absent"), 9, "to make room for other"))
    left = "on disk (it left to make room for other)"
    wait_for(studio, "_standings", lambda models: models["shapes"]["words"] == left)


def test_a_model_that_is_withdrawn_is_in_the_menu_and_says_why(studio: Studio) -> None:
    off = studio._standings["off"]
    assert (off["usable"], off["words"], off["wait"]) == (False, "switched off: later", "")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (a_model(expected_wait_s=0.0), "starts at once"),
        (a_model(expected_wait_s=40.0), "starts in about 40 s"),
        (a_model(), "it is loaded first"),
        (a_model(state="ready"), ""),
    ],
)
def test_the_wait_is_told_before_anybody_clicks(model: schemas.Model, words: str) -> None:
    assert wait_words(model) == words


def test_the_parts_of_the_script_are_joined_in_one_scope() -> None:
    text = script("studio/studio.js")
    assert not re.search(r"^(import|export (?!default))", text, re.MULTILINE)
    names = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names)) > 20
    assert text.index("function make(") < text.index("function render(")


def test_sizes_keep_the_models_limits() -> None:
    limits = {"max_pixels": 128 * 128, "size_multiple": 16}
    sizes = size_choices({"width": 128, "height": 128}, limits)
    assert sizes[0] == ("Square", 128, 128)
    for _, width, height in sizes:
        assert width * height <= 128 * 128
        assert width % 16 == height % 16 == 0
    odd = size_choices({"width": 832, "height": 1216}, {"max_pixels": 2**22, "size_multiple": 8})
    assert odd[0] == ("Default", 832, 1216)


def test_the_code_makes_the_same_picture() -> None:
    made = {"prompt": "it's", "model": "m", "seed": 7, "steps": 4, "width": 8, "height": 16}
    assert as_code(made) == """wg.generate("it's", model='m', seed=7, steps=4, size=(8, 16))"""


def test_a_closed_studio_no_longer_listens(studio: Studio, client: Client) -> None:
    studio.close()
    assert client.events._subscribers == []
