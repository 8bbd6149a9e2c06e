"""What a busy kernel has on the server stays, though its own thread cannot renew it."""

import pytest

from workshop_gpu.conductor import events
from workshop_gpu.conductor.conductor import Conductor
from workshop_gpu.host.leases import LOOK_S, Leases

GB = 1_000_000_000


class Server:
    """Time goes on in looks; which kernels are busy is said by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.busy: set[str] = set()
        self.conductor = Conductor(devices=("gpu0",))
        self.leases = Leases(self.tell, self.busy.__contains__)
        self.tell(events.CatalogueChanged((events.ModelFacts("a", file_bytes=30 * GB),)))
        self.tell(events.DeviceReady("gpu0", 80 * GB))
        self.tell(events.HoldTaken("hold", "ada", "k", "a", 60.0))
        self.tell(events.ReservationAsked("room", "ada", "k", 8 * GB, None, 60.0))

    def tell(self, event: events.Event) -> None:
        self.conductor.handle(event, self.now)

    def later(self, seconds_s: float) -> None:
        for _ in range(int(seconds_s / LOOK_S)):
            self.now += LOOK_S
            self.leases.renew(self.conductor.snapshot(self.now))
            self.tell(events.Tick())

    def living(self) -> list[str]:
        seen = self.conductor.snapshot(self.now)
        return [view.hold for view in seen.holds] + [view.reservation for view in seen.reservations]


@pytest.fixture
def server() -> Server:
    return Server()


def test_what_a_busy_kernel_has_outlives_its_silence(server: Server) -> None:
    server.busy.add("k")
    server.later(600.0)
    assert server.living() == ["hold", "room"]


def test_when_the_cell_has_ended_it_runs_out_unless_the_kernel_renews_it(server: Server) -> None:
    server.busy.add("k")
    server.later(600.0)
    server.busy.clear()
    server.later(10.0)
    server.tell(events.HoldRenewed("hold", "k", 60.0))
    server.later(40.0)
    assert server.living() == ["hold"]
    server.later(60.0)
    assert server.living() == []


def test_another_kernel_that_is_busy_keeps_nothing_alive(server: Server) -> None:
    server.busy.add("another")
    server.later(60.0)
    assert server.living() == []


def test_a_longer_time_than_ours_is_not_made_shorter(server: Server) -> None:
    server.busy.add("k")
    server.tell(events.HoldRenewed("hold", "k", 3600.0))
    server.later(100.0)
    assert server.conductor.hold("hold", server.now).expires_in_s == 3500.0


def test_what_ends_by_itself_with_its_kernel_alone_is_left_as_it_is(server: Server) -> None:
    server.busy.add("k")
    server.tell(events.ReservationAsked("teacher", "teacher", None, None, "gpu0", None))
    server.later(100.0)
    assert server.conductor.reservation("teacher", server.now).expires_in_s is None


def test_one_whose_time_is_over_before_the_tick_is_over(server: Server) -> None:
    server.busy.add("k")
    server.now = 60.0
    server.leases.renew(server.conductor.snapshot(server.now))
    server.tell(events.Tick())
    assert server.living() == []
