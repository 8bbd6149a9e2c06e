"""The status kept up to date from the stream, and what the widget shows of it."""

from typing import Any

import msgspec
import pytest

from tests.client.fakes import a_job, a_slot
from tests.client.test_tables import a_status
from workshop_gpu.api import schemas, schemas_room
from workshop_gpu.client.live_status import LiveStatus
from workshop_gpu.client.tables import StatusView
from workshop_gpu.client.widgets.status_view import status_view, summary
from workshop_gpu.conductor.effects import Holder
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.conductor.rungs import ENCODERS, Placement
from workshop_gpu.conductor.stepping import words_of

A, B = "a" * 32, "b" * 32
GB = 1_000_000_000


def after(*events: schemas.StreamEvent, status: schemas.Status | None = None) -> schemas.Status:
    live = LiveStatus()
    live.begin(status or a_status())
    for event in events:
        live.apply(event)
    assert live.status is not None
    return live.status


def news(text: str) -> schemas_room.News:
    return schemas_room.News(1.0, "notice", text)


def test_jobs_wait_in_their_order_run_and_leave() -> None:
    first, second = a_job(job_id=A, position=2), a_job(job_id=B, position=1, mine=False)
    status = after(schemas.JobEvent(first), schemas.JobEvent(second))
    assert [job.id for job in status.waiting] == [B, A]
    status = after(
        schemas.JobEvent(a_job("running", B)),
        schemas.JobEvent(a_job(job_id=A, position=1)),
        status=status,
    )
    assert ([job.id for job in status.waiting], [job.id for job in status.running]) == ([A], [B])
    status = after(schemas.JobEvent(a_job("done", B)), status=status)
    assert status.running == []


def test_what_the_stream_says_before_the_first_answer_is_not_lost() -> None:
    live = LiveStatus()
    live.apply(schemas.JobEvent(a_job()))
    assert live.status is None
    live.begin(a_status())
    assert live.status is not None
    assert len(live.status.waiting) == 1


def test_a_snapshot_starts_over_and_a_later_answer_does_not_undo_it() -> None:
    live = LiveStatus()
    live.apply(schemas.SnapshotEvent(a_status(paused="lunch"), [], []))
    live.begin(a_status())
    assert live.status is not None
    assert live.status.paused == "lunch"


def test_devices_slots_reservations_rules_news_messages_and_hands_follow() -> None:
    device = msgspec.structs.replace(a_status().devices[0], free_bytes=5)
    held = schemas.Reservation("r", "ann", False, "cuda:0", GB, False, "granted", 0, None, 60.0)
    call = schemas_room.HelpCall("k1", "faces", "faces.ipynb", "black", 1.0, False)
    loading = a_slot("loading", device="cuda:0")
    status = after(
        schemas.DeviceEvent(device),
        schemas.SlotEvent(loading, 0, ""),
        schemas.ReservationEvent(held, ""),
        schemas.PolicyEvent("lunch", 20.0, 3),
        schemas_room.NewsEvent(news("first")),
        schemas_room.NewsEvent(news("second")),
        schemas_room.MessageEvent(schemas_room.Message("Hello", "Zoe", 1.0)),
        schemas_room.HelpEvent(call, True),
    )
    assert status.devices[0].free_bytes == 5
    assert status.devices[0].slots == [loading]
    assert status.reservations == [held]
    assert (status.paused, status.message and status.message.text) == ("lunch", "Hello")
    assert [item.text for item in status.news] == ["second", "first"]
    assert status.help == [call]
    status = after(
        schemas.SlotEvent(a_slot("absent", device="cuda:0"), 1, ""),
        schemas.ReservationEvent(held, "given back"),
        schemas_room.MessageEvent(None),
        schemas_room.HelpEvent(call, False),
        status=status,
    )
    assert status.devices[0].slots == status.reservations == status.help == []
    assert status.message is None


# what is shown


def a_device(*holders: Holder, slots: Any = (), total_gb: int = 80) -> schemas.Device:
    free = total_gb * GB - sum(holder.bytes for holder in holders)
    return schemas.Device(
        "cuda:0", "A card", "ready", total_gb * GB, free, list(holders), list(slots)
    )


def test_every_byte_has_a_name_that_says_what_it_is() -> None:
    holders = [
        Holder("margin", "margin", 2 * GB),
        Holder("working", "faces", 4 * GB),
        Holder("weights", "turbo", 20 * GB),
        Holder("shared", "turbo, large", 8 * GB),
        Holder("notebook", "training", 6 * GB),
        Holder("foreign", "python (process 7)", 1 * GB),
        Holder("reservation", "training", 3 * GB),
    ]
    (device,) = status_view(a_status(devices=[a_device(*holders)]))["devices"]
    assert [part["label"] for part in device["parts"]] == [
        "turbo",
        "shared by turbo, large",
        "working for faces",
        "reserved by training",
        "own code of training",
        "python (process 7)",
        "safety margin",
    ]
    assert sum(part["share"] for part in device["parts"]) + device["free_share"] == 1.0
    assert device["free"] == "36.0 of 80.0 GB free"


def test_a_model_says_its_state_and_how_far_its_load_is() -> None:
    far = {"done_bytes": 5 * GB, "total_bytes": 20 * GB, "bytes_per_s": 5.0 * GB}
    loading = a_slot("loading", "turbo", "cuda:0", **far)
    failed = a_slot("failed", "large", "cuda:0", error=ErrorReport("load_failed", "Damaged."))
    ready = a_slot("ready", "shapes", "cuda:0", holds=2, pinned=True, running_jobs=1)
    device = a_device(
        Holder("weights", "turbo", 20 * GB),
        Holder("weights", "shapes", GB),
        slots=[loading, failed, ready],
    )
    parts = {p["name"]: p for p in status_view(a_status(devices=[device]))["devices"][0]["parts"]}
    words = "loading, 5.0 of 20.0 GB, 5.0 GB/s, about 3 s"
    assert (parts["turbo"]["words"], parts["turbo"]["done"]) == (words, 0.25)
    assert parts["shapes"]["words"] == "draws, held by 2, pinned"
    assert (parts["large"]["words"], parts["large"]["share"]) == ("failed: Damaged.", 0.0)


@pytest.mark.parametrize(
    ("placed", "words"),
    [
        (Placement(), "compiled, with ink, retro"),
        (Placement(staged=(ENCODERS,)), "text encoders staged, compiled, with ink, retro"),
    ],
)
def test_a_model_says_where_it_is_that_it_is_compiled_and_which_loras_it_has(
    placed: Placement, words: str
) -> None:
    special = {"placement": words_of(placed), "compiled": True, "loras": ("ink", "retro")}
    device = a_device(
        Holder("weights", "shapes", GB),
        Holder("weights", "plain", GB),
        slots=[a_slot("ready", "shapes", "cuda:0", **special), a_slot("ready", "plain", "cuda:0")],
    )
    status = a_status(devices=[device])
    shapes, plain = status_view(status)["devices"][0]["parts"]
    assert (shapes["words"], plain["words"]) == (f"ready · {words}", "ready")
    table = StatusView(status)
    assert f"weights: shapes ({words})\n" in repr(table)
    assert "weights: plain\n" in repr(table)
    assert f"weights: shapes 1.0 GB ({words})<" in table._repr_html_()


def test_the_queue_shows_who_runs_and_waits_and_which_of_them_i_am() -> None:
    jobs = [
        a_job(job_id=A, position=1, expected_wait_s=12.0, mine=True, participant="me"),
        a_job(job_id=B, position=2, mine=False, waiting_for="pause", expected_wait_s=1.0),
    ]
    running = [a_job("running", "c" * 32, step=5, mine=False)]
    status = a_status(waiting=jobs, running=running)
    view = status_view(status, live=False)
    assert [(row["place"], row["mine"], row["words"]) for row in view["queue"]] == [
        ("runs", False, "step 5 of 20"),
        ("1", True, "waits"),
        ("2", False, "paused"),
    ]
    assert [row["wait_s"] for row in view["queue"]] == [None, 12.0, None]
    assert view["queue"][0]["done"] == 0.25
    assert view["live"] is False


def test_the_room_in_one_line() -> None:
    assert summary(a_status()) == "16.0 of 24.0 GB free · nobody waits"
    waiting = [a_job(job_id=A, position=1, mine=False), a_job(job_id=B, position=2)]
    assert summary(a_status(waiting=waiting)).endswith("2 wait · you: number 2")
    assert summary(a_status(waiting=[a_job()])).endswith("1 waits · you: next")
    assert summary(a_status(running=[a_job("running")])).endswith("your picture is being made")


def test_of_a_long_queue_the_first_are_shown_and_ones_own() -> None:
    waiting = [
        a_job(job_id=f"{number:032x}", position=number, mine=number == 90)
        for number in range(1, 101)
    ]
    view = status_view(a_status(waiting=waiting))
    assert [row["place"] for row in view["queue"]][-2:] == ["25", "90"]
    assert view["more"] == 74
