"""`%load_ext workshop_gpu`."""

# IPython's magics carry no types.
# mypy: disable-error-code="no-untyped-call"

from collections.abc import Iterator

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from tests.client.fakes import FakeServer, a_job, a_png
from tests.client.test_reservations import GRANTED
from tests.client.test_tables import a_status
from workshop_gpu.api import schemas
from workshop_gpu.client import Client, session
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.client.magics import WorkshopMagics
from workshop_gpu.client.tables import ModelTable, StatusView


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "workshop_gpu")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture(autouse=True)
def _the_shared_client(
    monkeypatch: pytest.MonkeyPatch, fake: FakeServer, client: Client, shell: InteractiveShell
) -> None:
    monkeypatch.setattr(session._shared, "client", client)
    job = a_job("done")
    hold = schemas.Hold("h1", "shapes", 120.0)
    fake.answers |= {
        "POST jobs": job,
        f"GET jobs/{job.id}/images/0": a_png(),
        "GET status": a_status(),
        "POST holds": hold,
        "DELETE holds/h1": None,
    }


def test_generate_takes_the_cell_as_prompt_and_the_line_as_options(
    shell: InteractiveShell, fake: FakeServer
) -> None:
    line = '--model shapes --seed 7 --steps 20 --size 128x96 --guidance 2.5 --negative "a star"'
    image = shell.run_cell_magic("generate", line, "a red circle\n  on a blue background\n")
    assert isinstance(image, GeneratedImage)
    (body,) = fake.bodies("POST jobs")
    assert body["prompt"] == "a red circle on a blue background"
    assert (body["model"], body["seed"], body["steps"]) == ("shapes", 7, 20)
    assert (body["width"], body["height"], body["guidance"]) == (128, 96, 2.5)
    assert body["negative_prompt"] == "a star"


def test_generate_can_give_the_picture_a_name(shell: InteractiveShell) -> None:
    image = shell.run_cell_magic("generate", "--into first", "a red circle")
    assert shell.user_ns["first"] is image


@pytest.mark.parametrize(
    ("line", "cell"),
    [
        ("--sede 7", "a circle"),
        ("--seed x", "a circle"),
        ("--steps 2.5", "a circle"),
        ("", "  \n"),
        ("--into 3d", "a circle"),
    ],
)
def test_bad_arguments_are_usage_errors_and_nothing_is_sent(
    shell: InteractiveShell, fake: FakeServer, line: str, cell: str
) -> None:
    with pytest.raises(UsageError):
        shell.run_cell_magic("generate", line, cell)
    assert fake.bodies("POST jobs") == []


def test_models_and_gpu_show_tables(shell: InteractiveShell) -> None:
    assert isinstance(shell.run_line_magic("models", ""), ModelTable)
    assert isinstance(shell.run_line_magic("gpu", ""), StatusView)
    with pytest.raises(UsageError):
        shell.run_line_magic("gpu", "now")


def test_hold_lasts_until_dropped(
    shell: InteractiveShell, fake: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_line_magic("hold", "")
    shell.run_line_magic("hold", "shapes")
    shell.run_line_magic("hold", "shapes")
    shell.run_line_magic("hold", "")
    shell.run_line_magic("hold", "--drop")
    out = capsys.readouterr().out
    assert "You hold no model" in out
    assert "shapes stays" in out
    assert "Held: shapes (held)" in out
    assert [name for name, _ in fake.requests] == ["POST holds", "DELETE holds/h1"]
    with pytest.raises(UsageError, match="no hold on other"):
        shell.run_line_magic("hold", "--drop other")


def test_reserve_lasts_until_dropped(
    shell: InteractiveShell, fake: FakeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answers |= {
        "POST reservations": GRANTED,
        "GET reservations/r1": GRANTED,
        "DELETE reservations/r1": None,
    }
    for line in ("", "8GB", "500MB --gpu 0", "0.5", "--all", "", "--drop"):
        shell.run_line_magic("reserve", line)
    out = capsys.readouterr().out
    assert "You have reserved nothing" in out
    assert "Reserved: 8.0 GB of cuda:0 (granted)" in out
    sizes = [body["size_bytes"] for body in fake.bodies("POST reservations")]
    assert sizes == [8_000_000_000, 500_000_000, 500_000_000, None]
    assert len(fake.bodies("DELETE reservations/r1")) == 4


@pytest.mark.parametrize("line", ["8TB", "-8", "nan", "8GB --all", "much", "8GB --drop"])
def test_a_reservation_of_nonsense_is_a_usage_error(
    shell: InteractiveShell, fake: FakeServer, line: str
) -> None:
    with pytest.raises(UsageError):
        shell.run_line_magic("reserve", line)
    assert fake.bodies("POST reservations") == []


def test_each_magic_explains_itself(shell: InteractiveShell) -> None:
    for magic in (WorkshopMagics.generate, WorkshopMagics.hold, WorkshopMagics.reserve):
        assert "--" in (magic.__doc__ or "")
