"""Another device as the source of streamed blocks and as home of the text encoders.

Here both devices are pretended: the other one is memory of its own, as on a second card.
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.worker.fresh_pictures import WANTED
from tests.worker.opening import loader, source
from tests.worker.small_pipelines import save_flux, save_sd3
from tests.worker.worker_host import START_S, Host, source_of
from workshop_gpu.conductor.errors import InvalidRequest
from workshop_gpu.conductor.rungs import ENCODERS, RESIDENT, VAE, Placement
from workshop_gpu.worker import protocol

pytestmark = pytest.mark.usefixtures("quiet_libraries")

MAKES = {"sd3": save_sd3, "flux": save_flux}
ALL = 10**12
OTHER = "cpu:1"
STREAMED = Placement(streamed_bytes=ALL, source=OTHER)
AT_HOME = Placement(elsewhere=(ENCODERS,), source=OTHER)
BOTH = Placement(staged=(VAE,), elsewhere=(ENCODERS,), streamed_bytes=ALL, source=OTHER)


@pytest.fixture(scope="module", params=MAKES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' advice is no error of ours
        return MAKES[request.param](tmp_path_factory.mktemp("make") / request.param)


@pytest.fixture
def worker() -> Any:
    return loader(neighbours=(OTHER,))


def load(worker: Any, folder: Path, placement: Placement = RESIDENT) -> Any:
    return worker.load(source(folder), lambda *_: None, placement)


def drawn(worker: Any, model: Any) -> Any:
    from workshop_gpu.worker.course import Course
    from workshop_gpu.worker.drawing import draw

    (picture,) = draw(model, [WANTED], lambda step: None, Course(model, worker.stager))
    return picture.pixels


def test_the_picture_is_the_same_wherever_the_weights_come_from(folder: Path, worker: Any) -> None:
    """In place from rung to rung, with the host's memory between them."""
    resident = load(worker, folder)
    expected, whole_bytes = drawn(worker, resident), resident.weights_bytes
    for placement in (STREAMED, Placement(streamed_bytes=ALL), BOTH, AT_HOME, STREAMED, RESIDENT):
        model = load(worker, folder, placement)
        assert model.placement.name.count(OTHER) == placement.name.count(OTHER)
        for _ in range(2):
            assert np.array_equal(drawn(worker, model), expected), placement.name
            assert worker.resident_bytes == model.weights_bytes
        assert bool(worker.elsewhere_bytes) == bool(placement.source)
    assert worker.evict("small") == whole_bytes


def test_what_lies_elsewhere_is_counted_there_and_not_here(folder: Path, worker: Any) -> None:
    roles = {role.role: role for role in load(worker, folder).roles}
    whole_bytes = worker.resident_bytes
    encoders, blocks = roles[ENCODERS].size_bytes, sum(roles["denoiser"].blocks_bytes)

    at_home = load(worker, folder, AT_HOME)
    assert at_home.weights_bytes == whole_bytes - encoders
    assert worker.elsewhere_bytes == {OTHER: encoders}

    from_host = load(worker, folder, Placement(streamed_bytes=ALL)).weights_bytes
    assert worker.elsewhere_bytes == {}
    assert load(worker, folder, STREAMED).weights_bytes == from_host
    assert worker.elsewhere_bytes == {OTHER: blocks}

    load(worker, folder, BOTH)
    assert worker.elsewhere_bytes == {OTHER: encoders + blocks}
    worker.evict("small")
    assert worker.elsewhere_bytes == {}


def test_encoders_that_two_models_share_are_there_once_until_the_last_has_left(
    folder: Path, worker: Any
) -> None:
    expected = drawn(worker, load(worker, folder))
    one = load(worker, folder, AT_HOME)
    alone = worker.elsewhere_bytes[OTHER]
    other = worker.load(source(folder, "other"), lambda *_: None, AT_HOME)
    computed = sum(component.computed.size_bytes for component in other.with_role(ENCODERS))
    assert worker.elsewhere_bytes == {OTHER: alone + computed}
    assert other.encoder_bytes == one.encoder_bytes
    assert sum(part.device_bytes for part in other.encoder_bytes) + computed == alone
    worker.evict("small")
    assert worker.elsewhere_bytes == {OTHER: alone}
    assert np.array_equal(drawn(worker, other), expected)
    assert np.array_equal(drawn(worker, load(worker, folder, BOTH)), expected)
    worker.evict("other")
    worker.evict("small")
    assert worker.elsewhere_bytes == {}


def test_the_bytes_that_are_used_are_the_other_devices(folder: Path, worker: Any) -> None:
    """Not a setting that does nothing: what is changed there changes the picture."""
    expected = drawn(worker, load(worker, folder))
    model = load(worker, folder, STREAMED)
    units = model.rotation._units
    assert units
    for unit in units:
        unit.elsewhere.zero_()
    assert not np.array_equal(drawn(worker, model), expected)

    model = load(worker, folder, AT_HOME)
    for component in model.with_role(ENCODERS):
        component.abroad.zero_()
    assert not np.array_equal(drawn(worker, model), expected)
    assert np.array_equal(drawn(worker, load(worker, folder)), expected), "only there"


def test_a_load_that_fails_elsewhere_leaves_nothing_on_either_device(
    folder: Path, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workshop_gpu.worker.neighbours import Neighbour

    expected = drawn(worker, load(worker, folder))
    copy_of = Neighbour.copy_of

    def no_room_for_the_second(self: Any, *stretch: Any) -> Any:
        monkeypatch.setattr(Neighbour, "copy_of", no_room)
        return copy_of(self, *stretch)

    def no_room(*_: Any) -> Any:
        raise MemoryError("none left")

    monkeypatch.setattr(Neighbour, "copy_of", no_room_for_the_second)
    with pytest.raises(MemoryError):
        load(worker, folder, BOTH)
    assert (worker.resident_bytes, worker.elsewhere_bytes) == (0, {})
    monkeypatch.setattr(Neighbour, "copy_of", copy_of)
    assert np.array_equal(drawn(worker, load(worker, folder, BOTH)), expected)


def test_a_device_that_the_worker_does_not_see_is_refused_before_anything_moves(
    folder: Path, worker: Any
) -> None:
    load(worker, folder)
    before = worker.resident_bytes
    with pytest.raises(InvalidRequest, match="sees no device") as caught:
        load(worker, folder, Placement(streamed_bytes=ALL, source="cpu:2"))
    assert caught.value.facts["field"] == "source"
    assert worker.resident_bytes == before


def test_the_worker_tells_what_it_holds_of_the_other_device() -> None:
    host = Host("--device", "cpu", "--total-bytes", str(10**9), "--neighbours", OTHER)
    try:
        assert host.expect(protocol.Ready, START_S).memory.elsewhere == {}
        order = protocol.Load(source_of("shapes-dit"), AT_HOME)
        loaded = host.ask(order, protocol.Loaded)
        encoders = next(role for role in loaded.roles if role.role == ENCODERS)
        assert loaded.placement == AT_HOME
        assert loaded.memory.elsewhere == {OTHER: encoders.size_bytes}
        assert host.ask(protocol.Evict("shapes-dit"), protocol.Evicted).memory.elsewhere == {}
        unseen = protocol.Load(source_of("shapes-dit"), Placement(streamed_bytes=1, source="cpu:7"))
        assert host.ask(unseen, protocol.LoadFailed).error.kind == "invalid_request"
    finally:
        host.close()
