import asyncio

import pytest

from workshop_gpu.host.event_log import EventLog, FellBehind


def test_a_reader_reads_on_from_its_position():
    log = EventLog()
    for event in "abc":
        log.append(event)
    assert log.after(1) == [(2, "b"), (3, "c")]
    assert log.after(3) == []


def test_a_reader_that_fell_behind_is_told_so():
    log = EventLog(capacity=2)
    for event in "abc":
        log.append(event)
    assert log.after(1) == [(2, "b"), (3, "c")]
    with pytest.raises(FellBehind):
        log.after(0)


def test_a_position_of_the_future_is_another_servers():
    with pytest.raises(FellBehind):
        EventLog().after(5)


def test_waiting_readers_are_woken_by_an_event_and_by_the_end():
    async def scenario():
        log = EventLog()
        readers = [asyncio.create_task(log.grown(0)) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(reader.done() for reader in readers)
        log.append("a")
        await asyncio.gather(*readers)
        late = asyncio.create_task(log.grown(1))
        await asyncio.sleep(0)
        assert not late.done()
        log.close()
        await late

    asyncio.run(scenario())
