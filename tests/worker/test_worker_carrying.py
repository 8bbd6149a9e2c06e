"""A trip and its stretches: what they hold, and for how long."""

import threading
import weakref

import pytest

pytestmark = pytest.mark.usefixtures("quiet_libraries")


class Zeros:
    """A source; while it lives, so does all that its trip holds, the card's memory among it."""

    def read(self, start: int, into: memoryview) -> None:
        into[:] = bytes(len(into))


class Broken:
    """One that cannot be read."""

    def read(self, start: int, into: memoryview) -> None:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("ending", ["finish", "give_up"])
@pytest.mark.parametrize("source", [Zeros, Broken])
def test_what_a_trip_held_is_free_as_soon_as_the_trip_is_let_go(
    no_collector: None, source: type[Zeros] | type[Broken], ending: str
) -> None:
    """Python looks for cycles when it likes: a model's gigabytes must not wait for that."""
    from workshop_gpu.worker.carrying import Carrier
    from workshop_gpu.worker.devices import CpuDevice
    from workshop_gpu.worker.host_copy import OwnCopy

    carrier = Carrier(CpuDevice(10**9), lambda: False)
    freed = threading.Event()

    def travel() -> None:
        held = source()
        weakref.finalize(held, freed.set)
        trip = carrier.carry(
            held, 2**16, into=OwnCopy(2**16), onto=None, digest=True, on_bytes=lambda _: None
        )
        try:
            getattr(trip, ending)()
        except OSError:
            assert source is Broken

    travel()
    assert freed.wait(60)  # a thread of the carrier's may be about to let go of it
