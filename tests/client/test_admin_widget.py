"""`wg.Admin()` without a browser."""

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.client.fakes import WAIT_S, FakeServer, a_job, a_model, a_slot
from tests.client.test_instructor import ANN, POLICY
from tests.client.test_tables import a_status
from workshop_gpu.api import schemas, schemas_room
from workshop_gpu.api import schemas_instructor as instructor
from workshop_gpu.client import Admin, Client
from workshop_gpu.client.widgets import admin as admin_widget
from workshop_gpu.client.widgets.admin_actions import ACTIONS
from workshop_gpu.client.widgets.admin_view import Known, admin_view
from workshop_gpu.client.words import counted

KERNEL = instructor.Kernel("k1", "faces", "faces.ipynb", "idle", 0, 0, [], 0, 0, ["all variables"])
FACES = msgspec.structs.replace(ANN, id="k1", name="faces", kernel="k1", gpu_s=12.5, jobs=3)
ME = schemas.Me("user:zoe", "Zoe", None, True)


def known(**changes: Any) -> Known:
    values: dict[str, Any] = {
        "status": a_status(),
        "models": [a_model()],
        "policy": POLICY,
        "participants": [FACES],
        "kernels": [KERNEL],
        "audit": [],
    }
    return Known(**{**values, **changes})


@pytest.fixture(autouse=True)
def _answers(fake: FakeServer) -> None:
    fake.answers |= {
        "GET me": ME,
        "GET status": a_status(),
        "GET policy": POLICY,
        "GET participants": instructor.ParticipantList([FACES]),
        "GET kernels": instructor.KernelList([KERNEL]),
        "GET audit": instructor.AuditList([]),
        "POST models/shapes/load": a_model(),
        "PATCH models/shapes": a_model(),
        "PATCH policy": POLICY,
        "POST queue/pause": POLICY,
    }


@pytest.fixture
def admin(client: Client) -> Iterator[Admin]:
    widget = Admin(client)
    yield widget
    widget.close()


def section(view: dict[str, Any], title: str) -> list[dict[str, Any]]:
    (found,) = [each for each in view["sections"] if each["title"] == title]
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def click(admin: Admin, do: str, what: str = "", value: str = "") -> dict[str, Any]:
    admin._on_message(admin, {"do": do, "what": what, "value": value}, [])
    result: dict[str, Any] = admin._result
    return result


def test_without_the_right_it_says_how_to_get_it_and_does_nothing(
    client: Client, fake: FakeServer
) -> None:
    fake.answers["GET me"] = msgspec.structs.replace(ME, admin=False)
    admin = Admin(client)
    assert "wg.connect(" in admin._refusal
    assert admin._view == {}
    asked = len(fake.requests)
    assert click(admin, "load", "shapes") == {}
    assert len(fake.requests) == asked


def test_a_click_does_it_and_says_what_happened(admin: Admin, fake: FakeServer) -> None:
    assert click(admin, "load", "shapes")["words"] == "shapes is being loaded."
    assert "POST models/shapes/load" in [name for name, _ in fake.requests]
    click(admin, "pause", value="lunch")
    assert fake.bodies("POST queue/pause") == [{"reason": "lunch"}]
    click(admin, "withdraw", "shapes", "too slow")
    assert fake.bodies("PATCH models/shapes")[-1] == {"offered": False, "reason": "too slow"}
    click(admin, "queue_limit", value="5")
    assert fake.bodies("PATCH policy")[-1] == {"queue_limit": 5}


@pytest.mark.parametrize("value", ["", "many", "2.5", "1e999", "nan"])
def test_a_number_that_is_none_is_refused_in_words(admin: Admin, value: str) -> None:
    result = click(admin, "queue_limit", value=value)
    assert result["failed"]
    assert "number" in result["words"]


def test_what_the_server_refuses_and_what_is_no_action_is_said(
    admin: Admin, fake: FakeServer
) -> None:
    fake.answers["POST models/shapes/load"] = (409, "model_disabled")
    assert click(admin, "load", "shapes")["failed"]
    assert "no action" in click(admin, "__class__")["words"]
    admin._on_message(admin, "nonsense", [])


def test_it_follows_what_happens(admin: Admin, fake: FakeServer) -> None:
    met = threading.Event()
    admin.observe(lambda change: met.set(), "_view")
    fake.answers["GET status"] = a_status(paused="lunch", waiting=[a_job()])
    stream, _ = fake.next_stream()
    stream.send(schemas.JobEvent(a_job()))
    assert met.wait(WAIT_S)
    assert len(section(admin._view, "Jobs")) == 1


def test_a_look_that_breaks_does_not_end_the_looking(
    admin: Admin, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_widget, "_PAUSE_S", 0.05)
    broke, met, view = threading.Event(), threading.Event(), admin_widget.admin_view

    def breaks(_: Known) -> dict[str, Any]:
        broke.set()
        raise KeyError("a fault of ours")

    monkeypatch.setattr(admin_widget, "admin_view", breaks)
    admin.observe(lambda change: met.set(), "_view")
    stream, _ = fake.next_stream()
    stream.send(schemas.JobEvent(a_job()))
    assert broke.wait(WAIT_S)
    monkeypatch.setattr(admin_widget, "admin_view", view)
    fake.answers["GET status"] = a_status(paused="lunch", waiting=[a_job()])
    stream.send(schemas.JobEvent(a_job("running")))
    assert met.wait(WAIT_S)


def test_each_button_is_an_action_and_what_hurts_somebody_asks_first() -> None:
    held = schemas.Reservation("r", "ann", False, "cuda:0", 10**9, False, "granted", 0, None, 60.0)
    cleared = msgspec.structs.replace(held, id="c", whole=True, size_bytes=None, expires_in_s=None)
    call = schemas_room.HelpCall("k1", "faces", "faces.ipynb", "black", 1.0, False)
    message = schemas_room.Message("Hello", "Zoe", 1.0)
    ready = a_model(state="ready", slots=[a_slot("ready")], pinned=True)
    views = [
        admin_view(known()),
        admin_view(
            known(
                status=a_status(
                    waiting=[a_job()],
                    running=[a_job("running", "2" * 32)],
                    reservations=[held, cleared],
                    help=[call],
                    message=message,
                ),
                models=[ready, a_model("off", enabled=False, reason="later")],
                policy=msgspec.structs.replace(POLICY, paused=""),
            )
        ),
    ]
    buttons = [
        button
        for view in views
        for each in view["sections"]
        for row in each["rows"]
        for button in row["buttons"]
    ]
    assert {button["do"] for button in buttons} == set(ACTIONS)
    asks = {button["do"] for button in buttons if button["ask"]}
    assert asks == {"evict", "withdraw", "restart", "cancel", "clear", "end_reservation"}
    (restart,) = {button["ask"] for button in buttons if button["do"] == "restart"}
    assert restart == (
        "The kernel of faces is restarted. Lost: all variables. Finished pictures stay."
    )


def test_people_are_told_with_what_they_use() -> None:
    (row,) = section(admin_view(known()), "People")
    assert row["words"] == "1 waiting, 3 jobs, 12.5 GPU s, at most 3 waiting"
    assert counted(1, "job") == "1 job"
