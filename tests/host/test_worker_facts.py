from workshop_gpu.conductor import events
from workshop_gpu.conductor.errors import ErrorReport
from workshop_gpu.host.worker_facts import facts
from workshop_gpu.worker import protocol

MEMORY = protocol.Memory(used_bytes=30, ours_bytes=10)
READ = events.MemoryRead("cuda:0", 30, 10)
BROKEN = ErrorReport("load_failed", "broken")


def test_a_ready_device_knows_what_others_hold_of_it():
    ready = protocol.Ready(1, "H100", 80, MEMORY, {})
    assert facts("cuda:0", ready) == [events.DeviceReady("cuda:0", 80, 20), READ]


def test_the_speed_of_a_load_reaches_those_who_wait_for_it():
    assert facts("cuda:0", protocol.Loading("shapes", 3, 27, 12.1)) == [
        events.SlotProgressed("cuda:0", "shapes", 3, 27, 12.1)
    ]


def test_a_memory_reading_comes_behind_the_change_that_it_was_taken_after():
    loaded = protocol.Loaded("shapes", 40, 1.5, MEMORY)
    assert facts("cuda:0", loaded) == [events.SlotLoaded("cuda:0", "shapes", 40, 1.5), READ]
    failed = protocol.LoadFailed("shapes", BROKEN, MEMORY)
    assert facts("cuda:0", failed) == [events.LoadFailed("cuda:0", "shapes", BROKEN), READ]


def test_what_a_worker_holds_of_other_devices_comes_with_its_reading():
    memory = protocol.Memory(30, 10, {"cuda:1": 5})
    ready = protocol.Ready(1, "H100", 80, memory, {}, neighbours=("cuda:1",))
    assert facts("cuda:0", ready) == [
        events.DeviceReady("cuda:0", 80, 20, neighbours=("cuda:1",)),
        events.MemoryRead("cuda:0", 30, 10, elsewhere={"cuda:1": 5}),
    ]


def test_images_that_are_not_on_disk_yet_finish_no_job():
    drawn = protocol.Drawn("1", 2.0, 7, MEMORY, steps_s=1.5, encoded=False)
    told = events.JobDrawn("1", 2.0, 7, steps_s=1.5, encoded=False)
    assert facts("cuda:0", drawn) == [told, READ]
    assert facts("cuda:0", protocol.Done("1", [b"png"], drawn)) == []
