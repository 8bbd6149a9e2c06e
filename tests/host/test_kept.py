"""What outlives the server."""

import asyncio
import json
import logging

import pytest

from workshop_gpu.conductor.learned import Learned, Weighed
from workshop_gpu.conductor.policy import Policy
from workshop_gpu.conductor.states import Priority
from workshop_gpu.host.audit import AuditLine, AuditLog
from workshop_gpu.host.json_file import JsonFile
from workshop_gpu.host.kept import Kept, devices_measured

LOG = logging.getLogger("test")
CONFIGURED = Policy(patience_s=20.0, queue_limit=3)
CHANGED = Policy(
    patience_s=20.0,
    queue_limit=5,
    paused="lunch",
    withdrawn={"shapes": "too slow"},
    pinned={"shapes-dit": True},
    limits={"ann": 1},
    priorities={"ben": Priority.LOW},
)
MODELS = {"shapes", "shapes-dit"}


def kept(folder, configured=CONFIGURED, devices=("H100",)):
    return Kept(folder, configured, devices, LOG)


def test_a_policy_comes_back_as_it_was(tmp_path):
    assert asyncio.run(kept(tmp_path).keep_policy(CHANGED))
    assert kept(tmp_path).read(MODELS) == CHANGED


def test_what_the_instructor_did_not_change_follows_the_configuration(tmp_path):
    asyncio.run(kept(tmp_path).keep_policy(CHANGED))
    reconfigured = Policy(patience_s=60.0, queue_limit=7)
    policy = kept(tmp_path, reconfigured).read(MODELS)
    assert (policy.patience_s, policy.queue_limit) == (60.0, 5)


def test_rules_for_models_that_are_gone_are_dropped(tmp_path):
    asyncio.run(kept(tmp_path).keep_policy(CHANGED))
    policy = kept(tmp_path).read({"shapes"})
    assert (policy.withdrawn, policy.pinned) == ({"shapes": "too slow"}, {})


def test_rules_for_kernels_are_kept_for_their_notebooks_and_dropped_where_there_is_none(tmp_path):
    low = Priority.LOW
    ruled = Policy(
        limits={"k1": 1, "k2": 1, "ann": 2},
        priorities={"k1": low, "k2": low},
        notebooks={"k1": "/faces.ipynb", "k2": ""},
    )
    asyncio.run(kept(tmp_path).keep_policy(ruled))
    assert kept(tmp_path).read(MODELS) == Policy(
        limits={"k1": 1, "ann": 2}, priorities={"k1": low}, notebooks={"k1": "/faces.ipynb"}
    )


def test_what_another_process_measured_meanwhile_is_not_overwritten(tmp_path):
    server, tune = kept(tmp_path), kept(tmp_path)
    server.read_learned()
    own = Learned(loads_s={"shapes": 1.0, "large": 9.0})
    asyncio.run(server.keep_learned(own))
    found = Learned(loads_s={"large": 4.0}, bus_bytes_per_s=5e9)
    asyncio.run(tune.keep_learned(tune.read_learned().with_news(found)))
    for seconds_s in (2.0, 3.0):
        own = Learned(loads_s={"shapes": seconds_s, "large": 9.0})
        asyncio.run(server.keep_learned(own))
        learned = kept(tmp_path).read_learned()
        assert learned.loads_s == {"shapes": seconds_s, "large": 4.0}
        assert learned.bus_bytes_per_s == 5e9


def test_the_devices_of_what_was_measured_are_told(tmp_path):
    assert devices_measured(tmp_path) == ()
    asyncio.run(kept(tmp_path, devices=("H100", "H200")).keep_learned(Learned(loads_s={"a": 1.0})))
    assert devices_measured(tmp_path) == ("H100", "H200")


def test_without_a_file_the_configuration_counts(tmp_path):
    assert kept(tmp_path / "new").read(MODELS) == CONFIGURED


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[1]", b'{"queue_limit": "many"}', b'{"priorities": {"ann": 99}}'],
)
def test_a_broken_policy_is_set_aside_and_named(tmp_path, content, caplog):
    (tmp_path / "policy.json").write_bytes(content)
    assert kept(tmp_path).read(MODELS) == CONFIGURED
    assert not (tmp_path / "policy.json").exists()
    assert (tmp_path / "policy.json.broken").read_bytes() == content
    assert "policy.json.broken" in caplog.text


def test_a_disk_that_cannot_be_written_to_is_said_and_not_fatal(tmp_path, caplog):
    (tmp_path / "data").write_text("a file where the folder should be")
    assert not asyncio.run(kept(tmp_path / "data").keep_policy(CHANGED))
    assert "policy.json was not written" in caplog.text


def test_of_two_changes_at_once_the_later_stays(tmp_path):
    async def both():
        files = kept(tmp_path)
        await asyncio.gather(files.keep_policy(CONFIGURED), files.keep_policy(CHANGED))

    asyncio.run(both())
    assert kept(tmp_path).read(MODELS) == CHANGED


def test_a_writing_that_fails_leaves_nothing_of_itself(tmp_path):
    (tmp_path / "it.json").mkdir()
    file = JsonFile(tmp_path / "it.json", dict)
    with pytest.raises(OSError, match="directory"):
        file.write({"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["it.json"]
    assert file.read()[0] is None
    assert "cannot be read" in file.read()[1]


def test_what_was_measured_comes_back_on_the_same_devices_only(tmp_path):
    learned = Learned(weights={"shapes": Weighed(21_000_000)}, peaks={"resident/x": {128: 7}})
    asyncio.run(kept(tmp_path).keep_learned(learned))
    assert kept(tmp_path).read_learned() == learned
    assert kept(tmp_path, devices=("H100", "H100")).read_learned() == Learned()


def test_what_was_measured_is_written_when_it_is_news(tmp_path):
    async def twice():
        files = kept(tmp_path)
        await files.keep_learned(Learned(loads_s={"shapes": 1.0}))
        (tmp_path / "measured.json").unlink()
        await files.keep_learned(Learned(loads_s={"shapes": 1.0}))

    asyncio.run(twice())
    assert not (tmp_path / "measured.json").exists()


def a_line(number):
    return AuditLine(1e9 + number, "Ann", "user:ann", "paused the queue", "", {"number": number})


def test_the_audit_tells_the_last_actions_newest_first_also_after_a_restart(tmp_path):
    async def act():
        audit = AuditLog(tmp_path / "audit.jsonl", LOG)
        for number in range(3):
            await audit.add(a_line(number))
        return audit.lines

    lines = asyncio.run(act())
    assert lines == [a_line(2), a_line(1), a_line(0)]
    again = AuditLog(tmp_path / "audit.jsonl", LOG)
    again.read()
    assert again.lines == lines


def test_the_audit_is_bounded_on_disk_and_in_memory(tmp_path):
    async def act():
        audit = AuditLog(tmp_path / "audit.jsonl", LOG, kept_lines=10, max_bytes=1000)
        for number in range(100):
            await audit.add(a_line(number))
        return audit.lines

    assert len(asyncio.run(act())) == 10
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["audit.jsonl", "audit.previous.jsonl"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    last = (tmp_path / "audit.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["details"] == {"number": 99}


def test_half_a_line_costs_that_line_only(tmp_path):
    asyncio.run(AuditLog(tmp_path / "audit.jsonl", LOG).add(a_line(1)))
    with open(tmp_path / "audit.jsonl", "ab") as file:
        file.write(b'{"at": 5, "wh')
    audit = AuditLog(tmp_path / "audit.jsonl", LOG)
    audit.read()
    assert audit.lines == [a_line(1)]
