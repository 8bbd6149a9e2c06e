"""Xid errors, from a driver that is none: what is told of them, and which end a card."""

import asyncio
import logging
import threading
from types import SimpleNamespace

import anyio
import pynvml
import pytest

from tests.host.test_runtime import runtime_with
from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.conductor.effects import Notice
from workshop_gpu.host import xids
from workshop_gpu.host.xids import Reach, Xid, XidWatch

CARDS = {"GPU-a": "cuda:0", "GPU-b": "cuda:1"}


class FakeDriver:
    """Stands in for pynvml. `reports` are (uuid, number) pairs, or errors to raise; when there are
    no more, `over` is set."""

    nvmlEventTypeXidCriticalError = pynvml.nvmlEventTypeXidCriticalError
    NVMLError = pynvml.NVMLError
    NVMLError_Timeout = pynvml.NVMLError_Timeout
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported

    def __init__(self, *reports, deaf=(), lost=()):
        self.reports = list(reports)
        self.deaf, self.lost = deaf, lost
        self.registered = {}
        self.opened = 0
        self.over = asyncio.Event()

    def nvmlInit(self):
        self.opened += 1

    def nvmlShutdown(self):
        self.opened -= 1

    def nvmlEventSetCreate(self):
        return "events"

    def nvmlEventSetFree(self, events):
        self.registered.clear()

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return uuid

    def nvmlDeviceGetUUID(self, handle):
        return handle

    def nvmlDeviceGetMemoryInfo(self, handle):
        if handle in self.lost:
            raise pynvml.NVMLError_GpuIsLost()

    def nvmlDeviceRegisterEvents(self, handle, kinds, events):
        if handle in self.deaf:
            raise pynvml.NVMLError_NotSupported()
        self.registered[handle] = kinds

    def nvmlEventSetWait_v2(self, events, timeout_ms):
        if not self.reports:
            self.loop.call_soon_threadsafe(self.over.set)
            raise pynvml.NVMLError_Timeout()
        report = self.reports.pop(0)
        if isinstance(report, Exception):
            raise report
        uuid, number = report
        assert self.registered[uuid] == pynvml.nvmlEventTypeXidCriticalError
        return SimpleNamespace(device=uuid, eventData=number)


def heard(monkeypatch, driver):
    """What a watch tells until the driver has no more to report."""
    monkeypatch.setattr(xids, "pynvml", driver)
    told = []

    async def scenario():
        driver.loop = asyncio.get_running_loop()
        watch = XidWatch(CARDS, lambda *each: told.append(each), logging.getLogger("t"), rest_s=0.0)
        task = asyncio.create_task(watch.run())
        await driver.over.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    assert driver.opened == 0
    return told


def test_reports_are_told_with_their_device_and_number(monkeypatch):
    driver = FakeDriver(("GPU-b", 31), pynvml.NVMLError_Timeout(), ("GPU-a", 79))
    assert heard(monkeypatch, driver) == [("cuda:1", Xid(31)), ("cuda:0", Xid(79))]


def test_a_card_that_reports_nothing_does_not_keep_the_others_from_it(monkeypatch):
    driver = FakeDriver(("GPU-a", 48), deaf=("GPU-b",))
    assert heard(monkeypatch, driver) == [("cuda:0", Xid(48))]


def test_a_card_that_is_lost_is_told_once_as_fallen_off_the_bus(monkeypatch):
    lost = pynvml.NVMLError_GpuIsLost()
    driver = FakeDriver(lost, lost, ("GPU-a", 13), lost=("GPU-b",))
    assert heard(monkeypatch, driver) == [("cuda:1", Xid(79)), ("cuda:0", Xid(13))]


def test_a_driver_that_does_not_answer_is_told_once_and_does_not_hold_up_the_end(monkeypatch):
    driver, answers, told = FakeDriver(), threading.Event(), []
    monkeypatch.setattr(driver, "nvmlEventSetWait_v2", lambda *_: answers.wait(120))
    monkeypatch.setattr(xids, "pynvml", driver)
    monkeypatch.setattr(xids, "_GRACE_S", 0.0)

    async def scenario():
        silent = asyncio.Event()

        def tell(text):
            told.append(text)
            silent.set()

        log = logging.getLogger("t")
        watch = XidWatch(CARDS, lambda *each: None, log, tell, silence_s=0.01)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(watch.run)
                await silent.wait()
                assert "does not answer" in watch.problem
                group.cancel_scope.cancel()
        assert not answers.is_set(), "the end waited for the driver"

    try:
        asyncio.run(scenario())
    finally:
        answers.set()
    assert len(told) == 1


def test_a_driver_that_answers_again_is_told_and_heard(monkeypatch):
    driver, told, heard = FakeDriver(("GPU-a", 13)), [], []
    wait, answers = driver.nvmlEventSetWait_v2, threading.Event()

    def waits_long(events, timeout_ms):
        answers.wait(120)
        return wait(events, timeout_ms)

    monkeypatch.setattr(driver, "nvmlEventSetWait_v2", waits_long)
    monkeypatch.setattr(xids, "pynvml", driver)

    async def scenario():
        driver.loop = asyncio.get_running_loop()

        def tell(text):
            told.append(text)
            answers.set()

        log = logging.getLogger("t")
        watch = XidWatch(CARDS, lambda *each: heard.append(each), log, tell, silence_s=0.01)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(watch.run)
                await driver.over.wait()
                group.cancel_scope.cancel()

    asyncio.run(scenario())
    assert ["does not answer" in text for text in told[:2]] == [True, False]
    assert heard == [("cuda:0", Xid(13))]


@pytest.mark.parametrize(
    ("number", "reach"),
    [
        *((number, Reach.CALL) for number in (13, 31, 43, 45)),
        *((number, Reach.CARD) for number in (48, 62, 64, 74, 79, 95, 119, 120)),
        (94, Reach.PROCESS),
        (63, Reach.NOTHING),
        (999, Reach.NOTHING),
    ],
)
def test_what_each_xid_is_the_end_of(number, reach):
    assert Xid(number).reach is reach
    assert str(Xid(number)).startswith(f"Xid {number}: ")


class FakeSupervisor:
    def __init__(self):
        self.told = []

    def take_out(self, reason):
        self.told.append(("taken out", reason))

    def stop_worker(self, reason):
        self.told.append(("ended", reason))

    def note(self, text):
        self.told.append(("noted", text))


@pytest.mark.parametrize(
    ("number", "done", "people"),
    [(79, "taken out", "is taken out"), (94, "ended", "starts anew"), (31, "noted", "")],
)
def test_what_follows_from_an_xid_and_what_people_are_told(tmp_path, caplog, number, done, people):
    async def scenario():
        runtime = runtime_with(tmp_path, Catalogue(None))
        supervisor = runtime._supervisors["cpu:0"] = FakeSupervisor()
        runtime._on_xid("cpu:0", Xid(number))
        said = [each.text for _, each in runtime.events.after(0) if isinstance(each, Notice)]
        return supervisor.told, said

    told, said = asyncio.run(scenario())
    assert [(each, f"Xid {number}" in reason) for each, reason in told] == [(done, True)]
    assert [people in text for text in said] == ([True] if people else [])
    assert f"Xid {number}" in "".join([*said, caplog.text])
