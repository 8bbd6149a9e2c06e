"""`wg.room`, and what `wg.admin` does about people."""

from pathlib import Path

import pytest

from tests.client.fakes import FakeServer
from tests.client.test_tables import a_status
from workshop_gpu.api import schemas_instructor as instructor
from workshop_gpu.api import schemas_room
from workshop_gpu.client import Client
from workshop_gpu.client.errors import BadRequest, NotAllowed, ServerRefused

MARKUP = "<script>alert(1)</script>"
CALL = schemas_room.HelpCall("k1", "faces", "faces.ipynb", MARKUP, 1.0, False)
KERNEL = instructor.Kernel(
    "k1", "faces", "faces.ipynb", "idle", 2 * 10**9, 0, ["shapes"], 0, 1, ["all variables"]
)


@pytest.fixture(autouse=True)
def _answers(fake: FakeServer) -> None:
    fake.answers |= {
        "GET status": a_status(
            news=[schemas_room.News(1.0, "evicted", MARKUP)],
            message=schemas_room.Message("Save your work", "Zoe", 1.0),
        ),
        "POST help": CALL,
        "DELETE help": None,
        "GET help": schemas_room.HelpList([CALL]),
        "POST message": schemas_room.Message("hello", "Zoe", 1.0),
        "DELETE message": None,
        "GET participants": instructor.ParticipantList(
            [instructor.Participant("k1", "faces", "k1", 0, 0, 3, "normal")]
        ),
        "DELETE help/k1": None,
        "GET kernels": instructor.KernelList([KERNEL]),
        "POST kernels/k1/restart": KERNEL,
        "GET export": b"a zip",
    }


def test_a_hand_goes_up_and_down(client: Client, fake: FakeServer) -> None:
    assert "up" in client.room.help("my picture is black")
    assert fake.requests[-1] == ("POST help", {"text": "my picture is black"})
    assert client.room.no_help() == "Your hand is down."
    fake.answers["DELETE help"] = (404, "no_help_asked")
    assert "already" in client.room.no_help()


def test_what_happened_and_what_the_instructor_says_is_text(client: Client) -> None:
    assert client.room.message() == "Save your work"
    assert MARKUP in repr(client.room.news())
    assert "<script" not in client.room.news()._repr_html_()


def test_pictures_are_saved_as_a_file_that_is_whole_or_not_there(
    client: Client, fake: FakeServer, tmp_path: Path
) -> None:
    saved = client.room.export(tmp_path / "mine.zip")
    assert saved.read_bytes() == b"a zip"
    fake.answers["GET export"] = (404, "no_pictures")
    with pytest.raises(ServerRefused, match="no_pictures"):
        client.room.export(tmp_path / "none.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.zip"]


def test_the_instructor_tells_helps_restarts_and_exports(
    client: Client, fake: FakeServer, tmp_path: Path
) -> None:
    admin = client.admin
    admin.tell("hello")
    assert fake.requests[-1] == ("POST message", {"text": "hello"})
    admin.take_back()
    admin.helped("faces")
    assert fake.requests[-1] == ("DELETE help/k1", None)
    admin.restart("faces")
    assert fake.requests[-1] == ("POST kernels/k1/restart", None)
    with pytest.raises(BadRequest, match="no kernel runs"):
        admin.restart("nobody")
    admin.export(tmp_path / "all.zip", "faces")
    assert fake.requests[-1] == ("GET export", None)


def test_lists_of_people_are_text(client: Client) -> None:
    for shown in (client.admin.help_calls(), client.admin.kernels()):
        assert "<table" in shown._repr_html_()
        assert "<script" not in shown._repr_html_()
    assert "2.0 GB" in repr(client.admin.kernels())
    assert MARKUP in repr(client.admin.help_calls())


def test_who_has_no_right_is_told_how_to_get_it(client: Client, fake: FakeServer) -> None:
    fake.answers["POST message"] = (403, "not_allowed")
    with pytest.raises(NotAllowed, match=r"wg\.connect"):
        client.admin.tell("hello")
