"""Rooms in files: what they say, and what they may not say."""

from pathlib import Path

import pytest

from workshop_gpu.simulation.room import RoomMistake, parse_room, read_room, shipped_rooms

ROOM = """
title = "A room"

[[gpus]]
gb = 80.0

[[models]]
names = ["a", "b"]
gb = 27.6
image_s = [5.44]
load_s = { rebuild = 10.0, disk = 6.8, pool = 0.55 }

[[people]]
name = "person"
count = 10
"""


@pytest.mark.parametrize("name", shipped_rooms())
def test_every_shipped_room_can_be_read(name: str) -> None:
    assert read_room(name).title


def test_the_workshop_is_the_room_that_the_figures_are_about() -> None:
    room = read_room("workshop")
    (people,) = room.people
    assert (people.count, people.think_s, people.keep, people.images) == (10, 30.0, 0.7, 1)
    assert list(room.devices.values()) == [80_000_000_000]
    assert [models.gb for models in room.by_name.values()] == [27.6] * 3
    (models,) = room.models
    assert models.run_s(1) == 5.44
    assert (models.load_s.rebuild, models.load_s.disk, models.load_s.pool) == (10.0, 6.8, 0.55)
    held = models.weights_bytes * 2 + models.working_bytes
    assert held < 80_000_000_000 < held + models.weights_bytes


def test_a_room_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "room.toml"
    path.write_text(ROOM)
    assert read_room(str(path)).title == "A room"


def test_a_room_that_does_not_exist_is_told_with_those_that_do() -> None:
    with pytest.raises(RoomMistake, match="workshop"):
        read_room("nowhere")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("count = 10", "count = 0", "people"),
        ("count = 10", "cuont = 10", "cuont"),
        ("gb = 27.6", "gb = -1.0", "models"),
        ("gb = 27.6", "gb = inf", "< 1000000"),
        ("gb = 27.6", "gb = 79.0", "a fits on no GPU of the room"),
        ('["a", "b"]', '["a", "a"]', "the model a is there twice"),
        ("count = 10", 'models = ["c"]', "c, which is no model"),
        ("count = 10", 'images = "many"', "images"),
        ("image_s = [5.44]", "image_s = []", "image_s"),
        ("image_s = [5.44]", "image_s = [nan]", "image_s"),
        ("pool = 0.55", "pool = inf", "< 1000000"),
        ("gb = 80.0", "gb = inf", "< 1000000"),
        ("count = 10", "think_s = inf", "< 1000000"),
        ("[[people]]", "[[people", "room"),
        ('name = "person"', 'name = "person"\n[[people]]\nname = "person"', "the same name"),
    ],
)
def test_a_mistake_in_a_room_is_told_with_its_reason(old: str, new: str, reason: str) -> None:
    with pytest.raises(RoomMistake, match=reason):
        parse_room(ROOM.replace(old, new).encode())


def test_a_batch_takes_the_seconds_of_its_size() -> None:
    text = ROOM.replace("image_s = [5.44]", "image_s = [2.8, 1.5]")
    (models,) = parse_room(text.encode()).models
    assert [models.run_s(images) for images in (1, 2, 4)] == [2.8, 3.0, 6.0]
