"""LoRAs as people write them, in every place where they can."""

from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.client.fakes import FakeServer, a_job, a_model, a_png
from workshop_gpu.api import schemas
from workshop_gpu.cli import _parser
from workshop_gpu.client import Client, session
from workshop_gpu.client.asking import request_again
from workshop_gpu.client.errors import BadRequest
from workshop_gpu.client.grid_plan import label
from workshop_gpu.client.loras import loras_text, parse_loras
from workshop_gpu.client.tables import ModelTable
from workshop_gpu.client.widgets.choices import as_code

INK = schemas.Lora("ink", "Ink", "", 0.7, 1_000_000)
MADE = {"prompt": "a star", "model": "shapes", "seed": 7, "loras": {"ink": 0.8}}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (None, {}),
        ("", {}),
        ("ink", {"ink": None}),
        ("ink:0.8", {"ink": 0.8}),
        ("ink:0.8, grain", {"ink": 0.8, "grain": None}),
        ({"ink": 1, "grain": None}, {"ink": 1, "grain": None}),
        (["ink", "grain:-1"], {"ink": None, "grain": -1.0}),
        ([("ink", 0.8)], {"ink": 0.8}),
    ],
)
def test_every_way_to_write_them_means_the_same(written: Any, meant: dict[str, float]) -> None:
    assert parse_loras(written) == meant
    assert parse_loras(loras_text(meant)) == meant


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (7, "it is no LoRA"),
        ([7], "must be the name of a LoRA"),
        ("ink:much", "must be a number"),
        ({"ink": "0.8"}, "must be a number"),
        ({"ink": True}, "must be a number"),
        ("ink, ink:1", "twice"),
        (":1", "must be the name"),
    ],
)
def test_what_means_nothing_is_refused_before_it_is_sent(written: Any, problem: str) -> None:
    with pytest.raises(BadRequest, match=problem) as caught:
        parse_loras(written)
    assert caught.value.facts == {"field": "loras"}


def test_they_go_with_the_request_to_a_model_that_they_are_for(
    client: Client, fake: FakeServer
) -> None:
    models = [a_model("plain"), a_model("shapes", loras=[INK])]
    fake.answers |= {"GET models": schemas.ModelList(models), "POST jobs": a_job()}
    client.submit("a star", loras="ink:0.5")
    client.submit("a star", loras={"ink": None})
    client.submit("a star")
    sent = [(body["model"], body["loras"]) for body in fake.bodies("POST jobs")]
    assert sent == [("shapes", {"ink": 0.5}), ("shapes", {"ink": None}), ("plain", {})]


def test_a_picture_is_made_again_with_its_loras_and_told_as_code() -> None:
    assert request_again(MADE).loras == {"ink": 0.8}
    assert "loras={'ink': 0.8}" in as_code(MADE)
    assert "loras" not in as_code(MADE | {"loras": {}})


def test_the_table_of_models_has_a_column_where_there_are_some() -> None:
    assert "LoRAs" not in repr(ModelTable([a_model()], []))
    table = ModelTable([a_model(), a_model("b", loras=[INK])], [])
    assert "LoRAs" in repr(table)
    assert repr(table).splitlines()[-1].endswith("ink")


def test_a_grid_varies_them(client: Client, fake: FakeServer) -> None:
    job = a_job("done")
    fake.answers |= {"POST jobs": job, f"GET jobs/{job.id}/images/0": a_png()}
    client.grid("a star", "shapes", loras=["", "ink:0.5"], progress=False)
    assert [body["loras"] for body in fake.bodies("POST jobs")] == [{}, {"ink": 0.5}]
    assert [label("loras", each) for each in ("", None, "ink:0.5")] == [
        "no LoRA",
        "no LoRA",
        "ink:0.5",
    ]


def test_the_magic_and_the_command_take_them(
    client: Client, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job("done")
    fake.answers |= {"POST jobs": job, f"GET jobs/{job.id}/images/0": a_png()}
    monkeypatch.setattr(session._shared, "client", client)
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "workshop_gpu")  # type: ignore[no-untyped-call]
    shell.run_cell_magic(  # type: ignore[no-untyped-call]
        "generate", "--model shapes --lora ink:0.8 --lora grain", "a star"
    )
    InteractiveShell.clear_instance()
    (body,) = fake.bodies("POST jobs")
    assert body["loras"] == {"ink": 0.8, "grain": None}
    options = _parser().parse_args(["generate", "a star", "--lora", "ink:0.8", "--lora", "grain"])
    assert dict(options.lora) == {"ink": 0.8, "grain": None}
