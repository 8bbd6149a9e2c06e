"""Lists that show themselves as tables."""

from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from tests.client.fakes import a_job, a_model, a_slot
from workshop_gpu.api import schemas
from workshop_gpu.client.tables import ModelTable, StatusView, model_state
from workshop_gpu.client.widgets.status_view import status_view
from workshop_gpu.conductor.effects import Holder
from workshop_gpu.conductor.errors import ErrorReport

BROKEN = a_slot("failed", error=ErrorReport("bad_checkpoint", "vae.safetensors is cut off.", {}))
MARKUP = "<script>alert(1)</script>"


def text_of(html: str) -> str:
    """The text that a reader sees; fails where a tag came from outside."""
    texts: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            assert tag != "script"

        def handle_data(self, data: str) -> None:
            texts.append(data)

    Reader().feed(html)
    return "|".join(texts)


def a_status(**changes: Any) -> schemas.Status:
    values: dict[str, Any] = {
        "version": "0",
        "started_at": 0.0,
        "me": schemas.Me("me", "me", None, False),
        "devices": [
            schemas.Device(
                "cuda:0",
                "A card",
                "ready",
                24_000_000_000,
                16_000_000_000,
                [Holder("weights", "sdxl", 7_000_000_000), Holder("margin", "", 1_000_000_000)],
                [],
            )
        ],
        "waiting": [],
        "running": [],
        "problems": [],
    }
    return schemas.Status(**{**values, **changes})


@pytest.mark.parametrize(
    ("pool", "line"),
    [
        (schemas.Pool(64 * 10**9, 28 * 10**9), "Weight pool: 28.0 GB of 64.0 GB"),
        (schemas.Pool(problem="it is switched off"), "No weight pool: it is switched off"),
    ],
)
def test_the_weight_pool_is_shown(pool: schemas.Pool, line: str) -> None:
    view = StatusView(a_status(pool=pool))
    assert line in repr(view).splitlines()
    assert line in text_of(view._repr_html_())


def test_the_weight_pool_says_for_which_models_its_parts_are() -> None:
    parts = [
        schemas.PoolPart(6 * 10**9, ["sdxl"], 1),
        schemas.PoolPart(5 * 10**9, ["sdxl"], 1),
        schemas.PoolPart(9 * 10**9, ["large", "turbo"], 2),
        schemas.PoolPart(2 * 10**9, [MARKUP], 0),
        schemas.PoolPart(10**8, ["sdxl"], 1, "ink"),
    ]
    view = StatusView(a_status(pool=schemas.Pool(64 * 10**9, 22 * 10**9, "", parts)))
    told = [
        ("sdxl", "11.0 GB"),
        ("shared by large, turbo", "9.0 GB"),
        (f"{MARKUP} (not in use)", "2.0 GB"),
        ("LoRA ink of sdxl", "100 MB"),
    ]
    lines = repr(view).splitlines()
    begin = lines.index("Weight pool: 22.0 GB of 64.0 GB") + 1
    assert lines[begin : begin + 4] == [f"  {size:>9}  {what}" for what, size in told]
    assert " · ".join(f"{what} {size}" for what, size in told) in text_of(view._repr_html_())


def test_of_a_full_weight_pool_the_largest_parts_are_named() -> None:
    parts = [schemas.PoolPart(10**9 * (20 - i), [f"m{i}"], 1) for i in range(15)]
    shown = repr(StatusView(a_status(pool=schemas.Pool(10**12, 10**11, "", parts))))
    assert "9.0 GB  m11\n" in shown
    assert "m12" not in shown
    assert "21.0 GB  3 others\n" in shown


def test_models_are_a_list_and_a_table() -> None:
    table = ModelTable([a_model("a"), a_model("b", state="ready", slots=[a_slot("ready")])], [])
    assert (len(table), table[0].id, table["b"].id, table.ids) == (2, "a", "b", ["a", "b"])
    assert [model.id for model in table[:1]] == ["a"]
    assert "b" in [model.id for model in table]
    assert "ready on cpu:0" in repr(table)
    assert "ready on cpu:0" in text_of(table._repr_html_())
    with pytest.raises(KeyError):
        table["c"]


def test_plain_text_is_aligned() -> None:
    lines = repr(ModelTable([a_model("a"), a_model("a-longer-name")], [])).splitlines()
    assert len({line.index("on disk") for line in lines[2:]}) == 1


def test_no_models_and_mistakes_of_the_catalogue_are_said() -> None:
    assert "no models" in repr(ModelTable([], []))
    assert "no models" in ModelTable([], [])._repr_html_()
    table = ModelTable([a_model()], ["line 3: unknown key"])
    assert "line 3" in repr(table)
    assert "line 3" in table._repr_html_()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "on disk"),
        ({"state": "loading", "done_bytes": 10**9, "total_bytes": 4 * 10**9}, "1.0 of 4.0 GB"),
        (
            {
                "state": "loading",
                "done_bytes": 3 * 10**9,
                "total_bytes": 27 * 10**9,
                "bytes_per_s": 12.1e9,
            },
            "loading 3.0 of 27.0 GB, 12.1 GB/s, about 2 s",
        ),
        ({"state": "loading"}, "loading"),
        ({"enabled": False, "reason": "after lunch"}, "switched off: after lunch"),
        ({"enabled": False}, "switched off"),
        ({"state": "unavailable", "problem": "no files"}, "not usable: no files"),
        ({"state": "failed"}, "did not load; ask for it to try again"),
        ({"state": "failed", "slots": [BROKEN]}, "did not load (vae.safetensors is cut off); ask"),
        ({"state": "leaving"}, "leaving"),
        (
            {"state": "ready", "slots": [a_slot("ready", compiled=True, loras=("ink",))]},
            "ready on cpu:0, compiled, with ink",
        ),
    ],
)
def test_a_state_is_said_in_words(changes: dict[str, Any], words: str) -> None:
    assert words in model_state(a_model(**changes))


def test_the_status_shows_who_holds_the_memory_and_who_waits() -> None:
    view = StatusView(
        a_status(
            running=[a_job("running", step=3, participant="Ada", mine=False)],
            waiting=[a_job(participant="Bob", expected_wait_s=8.0)],
        )
    )
    for shown in (repr(view), text_of(view._repr_html_())):
        for part in ("16.0 GB of 24.0 GB free", "weights: sdxl", "7.0 GB", "Ada", "step 3 of 20"):
            assert part in shown
        assert "Bob (you)" in shown
        assert "starts about 8 s" in shown


def test_an_empty_queue_and_a_server_without_gpus_are_said() -> None:
    assert "Nobody waits" in StatusView(a_status())._repr_html_()
    assert "no GPU" in StatusView(a_status(devices=[]))._repr_html_()


@pytest.mark.parametrize(
    ("waiting_for", "reason", "wait_s", "words"),
    [
        ("", "", 8.0, "starts about 8 s"),
        ("pin", "a is pinned.", None, "waits (a is pinned)"),
        ("reservation", "Ann has all of cuda:0.", 8.0, "starts about 8 s (Ann has all of cuda:0)"),
        ("pause", "The queue is paused: lunch.", None, "waits"),
        ("download", "", None, "waits (its model is being downloaded)"),
    ],
)
def test_who_waits_reads_what_for(
    waiting_for: str, reason: str, wait_s: float | None, words: str
) -> None:
    job = a_job(waiting_for=waiting_for, reason=reason, expected_wait_s=wait_s)
    status = StatusView(a_status(waiting=[job]))
    assert repr(status).splitlines()[-1].endswith(f"  {words}")
    assert f"{words}|" in text_of(status._repr_html_()) + "|"


@pytest.mark.parametrize(
    ("state", "reason", "retry_s", "words"),
    [
        ("starting", "", None, "its worker is starting"),
        ("starting", "killed", None, "its worker is being started again (killed)"),
        ("lost", "no driver", None, "cannot be used (no driver)"),
        (
            "lost",
            f"Xid {MARKUP}",
            60.0,
            f"cannot be used (Xid {MARKUP}); it is tried again every 60 s",
        ),
    ],
)
def test_a_gpu_that_does_not_work_says_why_and_whether_it_is_tried_again(
    state: str, reason: str, retry_s: float | None, words: str
) -> None:
    (card,) = a_status().devices
    lost = msgspec.structs.replace(card, state=state, reason=reason, retry_s=retry_s)
    status = StatusView(a_status(devices=[lost]))
    for shown in (repr(status), text_of(status._repr_html_())):
        assert f"cuda:0 (A card): {words}" in shown.replace("|", "")
    assert status_view(status.status)["devices"][0]["state"] == words


def test_names_are_text_and_never_markup() -> None:
    view = StatusView(a_status(waiting=[a_job(participant=MARKUP, model=MARKUP)]))
    assert MARKUP in text_of(view._repr_html_())
    table = ModelTable([a_model(MARKUP, enabled=False, reason=MARKUP)], [MARKUP])
    assert MARKUP in text_of(table._repr_html_())


def test_the_status_shows_reservations_and_why_the_queue_is_paused() -> None:
    waiting = schemas.Reservation(
        id="r1",
        participant=MARKUP,
        mine=False,
        device=None,
        size_bytes=8_000_000_000,
        whole=False,
        state="waiting",
        position=1,
        expected_wait_s=40.0,
        expires_in_s=None,
    )
    status = StatusView(a_status(reservations=[waiting], paused=f"lunch {MARKUP}"))
    for shown in (repr(status), text_of(status._repr_html_())):
        assert "The queue is paused: lunch" in shown
        assert "Waiting for 8.0 GB, about 40 s" in shown
        assert MARKUP in shown
