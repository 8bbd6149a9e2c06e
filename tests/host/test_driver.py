"""Events into the conductor, effects out of it: what one that breaks costs the others."""

import logging

import pytest

from workshop_gpu.conductor import effects, events
from workshop_gpu.conductor.conductor import Conductor, Settings
from workshop_gpu.host.driver import Driver

LOG = logging.getLogger("tests.driver")


def test_an_effect_that_cannot_be_carried_out_costs_none_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[effects.Effect] = []
    breaks: list[bool] = []

    def carry_out(effect: effects.Effect) -> None:
        if breaks.pop() if breaks else False:
            raise ValueError("a listener broke")
        done.append(effect)

    conductor = Conductor(Settings(), ("gpu0",))
    driver = Driver(conductor, carry_out, LOG)
    driver.tell(events.CatalogueChanged((events.ModelFacts("a", file_bytes=10**9),)))
    driver.tell(events.DeviceReady("gpu0", 10**11))
    breaks.append(True)
    driver.ask(events.JobSubmitted("job", "ada", "kernel", "a", 20, 512 * 512))
    assert any(isinstance(effect, effects.AnnounceJob) for effect in done)
    assert "could not be carried out" in caplog.text
    assert "a listener broke" in caplog.text
