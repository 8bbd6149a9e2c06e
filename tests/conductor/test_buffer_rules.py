"""Settings whose buffers alone keep a model out are named, with the most that would do."""

import re
from bisect import bisect_left

import msgspec
import pytest

from tests.conductor.laddered import LARGE, laddered
from tests.conductor.staging import GB, MEGAPIXEL, Stage, stage
from workshop_gpu.conductor import events
from workshop_gpu.conductor.errors_placement import InvalidPlacement
from workshop_gpu.conductor.memory_settings import MemorySettings

ROOMS = [
    ("blockless", 14, MemorySettings(prefetch=16), "prefetch"),
    ("blockless", 14, MemorySettings(swap_space_bytes=13 * GB), "swap_space_gb"),
    ("large", 10, MemorySettings(swap_space_bytes=9 * GB), "swap_space_gb"),
    ("large", 10, MemorySettings(swap_space_bytes=9 * GB, prefetch=4), "swap_space_gb"),
    ("large", 11, MemorySettings(swap_space_bytes=8 * GB, min_free_bytes=2 * GB), "swap_space_gb"),
    ("large", 80, MemorySettings(prefetch=16, max_vram_bytes=7 * GB), "prefetch"),
    (
        *("large", 80, MemorySettings(swap_space_bytes=8 * GB, max_vram_bytes=7 * GB)),
        "swap_space_gb",
    ),
]
SETTING = {"prefetch": "prefetch", "swap_space_gb": "swap_space_bytes"}


def asked(name: str, gb: int, memory: MemorySettings) -> tuple[Stage, events.JobSubmitted]:
    made = stage(laddered(name, memory), gb=gb)
    return made, made.job_submitted(name)


@pytest.mark.parametrize(("name", "gb", "memory", "field"), ROOMS)
def test_buffers_that_keep_a_model_out_are_refused_with_the_most_that_would_do(
    name: str, gb: int, memory: MemorySettings, field: str
) -> None:
    made, request = asked(name, gb, memory)
    report = made.refused(request)
    assert (report.kind, report.facts["field"]) == ("invalid_placement", field)
    most = report.facts["most" if field == "prefetch" else "most_bytes"]
    assert isinstance(most, int)
    for value in (most, most + 1):
        changed = msgspec.structs.replace(memory, **{SETTING[field]: value})
        made, request = asked(name, gb, changed)
        if value == most:
            made.tell(request)
            assert made.order() == f"load {name}"
        else:
            assert made.refused(request).facts["field"] == field


def test_what_lacks_a_byte_is_not_told_to_need_as_much_as_there_is() -> None:
    def refusal(most_bytes: int) -> str:
        made, request = asked("large", 80, MemorySettings(prefetch=16, max_vram_bytes=most_bytes))
        try:
            made.conductor.handle(request, made.now)
        except InvalidPlacement as refused:
            return str(refused)
        return ""

    caps = range(7 * GB, 80 * GB)
    enough_bytes = caps[bisect_left(caps, True, key=lambda most_bytes: not refusal(most_bytes))]
    needed, given = re.findall(r"[0-9.]+ GB", refusal(enough_bytes - 1))[:2]
    assert needed != given


def test_where_both_settings_are_too_large_the_number_goes_with_the_other() -> None:
    layers = msgspec.structs.replace(LARGE[1], layer_bytes=400_000_000)
    both = MemorySettings(swap_space_bytes=8 * GB, prefetch=16, max_vram_bytes=5 * GB)
    facts = msgspec.structs.replace(laddered(memory=both), roles=(LARGE[0], layers, LARGE[2]))
    made = stage(facts)
    report = made.refused(made.job_submitted("large"))
    assert report.facts["field"] == "swap_space_gb"
    assert "and prefetch = 1" in report.message
    most = report.facts["most_bytes"]
    assert isinstance(most, int)
    mended = msgspec.structs.replace(both, swap_space_bytes=most, prefetch=1)
    made = stage(msgspec.structs.replace(facts, memory=mended))
    made.submit("large")
    assert made.order() == "load large"


def test_a_smaller_picture_that_would_fit_is_named_too() -> None:
    made = stage(laddered("blockless", MemorySettings(prefetch=10)), gb=14)
    report = made.refused(made.job_submitted("blockless", pixels=2 * MEGAPIXEL))
    assert report.facts["field"] == "prefetch"
    assert "or a picture of" in report.message


@pytest.mark.parametrize("memory", [MemorySettings(), MemorySettings(prefetch=2)])
def test_a_model_that_fits_with_no_buffers_is_too_large(memory: MemorySettings) -> None:
    made, request = asked("blockless", 3, memory)
    assert made.refused(request).kind == "model_too_large"


def test_a_waiting_job_that_loses_its_card_is_told_of_the_buffers() -> None:
    facts = laddered("blockless", MemorySettings(prefetch=16))
    made = stage(facts, devices=("gpu0", "gpu1"))
    made.ready("gpu0", 14)
    made.ready("gpu1", 80)
    job = made.submit("blockless")
    made.tell(events.DeviceGone("gpu1", "it fell off the bus"))
    error = made.job(job).error
    assert error is not None
    assert error.facts["field"] == "prefetch"
