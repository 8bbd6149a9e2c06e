"""What happens with a job, in words."""

from typing import Any

import pytest

from tests.client.fakes import a_job, a_model
from workshop_gpu.client.words import Progress, Words, about, amount, amount_of, describe
from workshop_gpu.conductor.errors import ErrorReport

GB = 1_000_000_000


def words(state: str, model: Any = None, **changes: Any) -> Words:
    return describe(Progress(a_job(state, **changes), model))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"position": 2, "expected_wait_s": 8.2}, "Position 2 in the queue, about 8 s"),
        ({"position": 3, "expected_wait_s": 200.0}, "Position 3 in the queue, about 3 min"),
        ({"position": 2}, "Position 2 in the queue"),
        ({"position": 2, "priority": "low"}, "Position 2 in the queue (low priority)"),
        ({"position": 1, "expected_wait_s": 0.5}, "Next in the queue, any moment now"),
        (
            {"waiting_for": "load", "expected_wait_s": 9.0},
            "shapes will be loaded, about 9 s",
        ),
        ({"waiting_for": "download"}, "shapes is being downloaded"),
        ({"waiting_for": "load", "position": 4}, "shapes will be loaded (position 4)"),
        ({"waiting_for": "room"}, "Waiting for room on the GPU for shapes"),
        ({"waiting_for": "device"}, "Waiting for a GPU to be ready"),
        (
            {"waiting_for": "pause", "reason": "The queue is paused: lunch"},
            "The queue is paused: lunch",
        ),
        (
            {"waiting_for": "reservation", "reason": "ann has 8.0 GB.", "expected_wait_s": 60.0},
            "ann has 8.0 GB, about 60 s",
        ),
    ],
)
def test_a_waiting_job_says_for_what_and_how_long(changes: dict[str, Any], line: str) -> None:
    assert words("queued", **changes).line() == line


def test_the_wait_counts_down_but_never_below_nothing() -> None:
    job = a_job("queued", position=2, expected_wait_s=8.0)
    assert describe(Progress(job, passed_s=3)).line() == "Position 2 in the queue, about 5 s"
    assert describe(Progress(job, passed_s=30)).line() == "Position 2 in the queue, any moment now"


def test_a_load_is_shown_in_gigabytes_with_its_part() -> None:
    model = a_model(state="loading", done_bytes=1_200_000_000, total_bytes=3_400_000_000)
    loading = words("queued", model, waiting_for="load")
    assert loading.line() == "Loading shapes: 1.2 of 3.4 GB"
    assert loading.part == pytest.approx(12 / 34)


@pytest.mark.parametrize(
    ("expected_wait_s", "passed_s", "line"),
    [
        (None, 0, "Loading shapes: 3.0 of 27.0 GB, 12.1 GB/s, about 2 s"),
        (1.0, 0, "Loading shapes: 3.0 of 27.0 GB, 12.1 GB/s, about 2 s"),
        (20.0, 0, "Loading shapes: 3.0 of 27.0 GB, 12.1 GB/s, about 20 s"),
        (20.0, 19, "Loading shapes: 3.0 of 27.0 GB, 12.1 GB/s, about 2 s"),
    ],
)
def test_a_load_says_its_speed_and_the_longer_of_what_is_left_and_what_was_foreseen(
    expected_wait_s: float | None, passed_s: int, line: str
) -> None:
    model = a_model(state="loading", done_bytes=3 * GB, total_bytes=27 * GB, bytes_per_s=12.1e9)
    job = a_job("queued", waiting_for="load", expected_wait_s=expected_wait_s)
    assert describe(Progress(job, model, passed_s=passed_s)).line() == line


def test_the_seconds_that_were_foreseen_stay_while_the_bytes_come() -> None:
    model = a_model(state="loading", done_bytes=3 * GB, total_bytes=27 * GB)
    line = words("queued", model, waiting_for="load", expected_wait_s=4.0).line()
    assert line == "Loading shapes: 3.0 of 27.0 GB, about 4 s"


def test_a_download_is_called_one() -> None:
    model = a_model(state="downloading", done_bytes=0, total_bytes=3 * GB)
    assert words("queued", model).text == "Downloading shapes: 0.0 of 3.0 GB"


def test_a_load_of_unknown_size_has_no_part() -> None:
    assert words("queued", a_model(state="loading")) == Words("Loading shapes")


def test_whoever_waits_further_behind_reads_the_position_and_not_somebody_elses_load() -> None:
    model = a_model(state="loading", done_bytes=1, total_bytes=3 * GB)
    assert words("queued", model, position=5).text == "Position 5 in the queue"


def test_a_running_job_counts_its_steps() -> None:
    assert words("running") == Words("Starting", 0.0)
    assert words("running", step=7) == Words("Step 7 of 20", 0.35)
    assert words("running", step=20) == Words("Step 20 of 20: finishing", 1.0)


def test_a_job_that_ran_out_of_memory_says_how_it_went_on() -> None:
    job = a_job("running", step=7, went_on="went on with VAE tiling")
    assert describe(Progress(job)).text == "Step 7 of 20 (went on with VAE tiling)"
    told = describe(Progress(job, restarted=True))
    assert told.text == "Step 7 of 20 (went on with VAE tiling; the server was restarted)"


def test_an_end_says_how() -> None:
    assert words("done").text == "Done"
    assert words("cancelled").text == "Cancelled"
    error = ErrorReport("out_of_memory", "Out of GPU memory.")
    assert words("failed", error=error).text == "Out of GPU memory."
    assert words("failed").text == "Failed"


def test_a_silent_server_is_said_before_all_else() -> None:
    lost = describe(Progress(a_job("running", step=3), reachable=False))
    assert "does not answer" in lost.text


def test_amounts_read_as_people_say_them() -> None:
    assert (amount(3_140_000_000), amount(42_400_000), amount(1_230_000)) == (
        "3.1 GB",
        "42 MB",
        "1.2 MB",
    )
    assert amount_of(500_000, 9_400_000) == "0.5 of 9.4 MB"
    assert (about(1.0), about(30.0), about(600.0)) == (
        "any moment now",
        "about 30 s",
        "about 10 min",
    )
