"""The judge itself: it passes right pictures and fails wrong ones."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from shape_judge.pixels import NAMED, Bytes, look
from shape_judge.tasks import Task, Wanted
from shape_judge.verdict import judge
from shape_models.drawing import draw_packed
from shape_models.scenes import Scene, Thing, draw_scene, pack

STAR = Thing("star", "red", "small", 40, 64, 15.0)
HEXAGON = Thing("hexagon", "green", "big", 92, 64, 27.0)
PAIR = Scene("blue", (STAR, HEXAGON), None, "left")


def clean(scene: Scene) -> Bytes:
    """The scene as the models should draw it."""
    picture = (draw_packed(torch.from_numpy(pack([scene])))[0] + 1) * 127.5
    return picture.round().to(torch.uint8).permute(1, 2, 0).numpy()


def task_of(scene: Scene) -> Task:
    things = tuple(
        Wanted(t.shape, t.colour, None if t.size == "medium" else t.size) for t in scene.things
    )
    return Task("", things, scene.ground, scene.place, scene.relation)


def test_clean_drawings_of_random_scenes_are_right_in_everything() -> None:
    rng = random.Random(5)
    for _ in range(150):
        scene = draw_scene(rng)
        verdict = judge(clean(scene), task_of(scene))
        assert verdict.right_in_all, (scene, look(clean(scene)))
        assert verdict.clean


@pytest.mark.parametrize("colour", [name for name in NAMED if name not in ("blue", "red")])
def test_a_wrong_colour_is_wrong(colour: str) -> None:
    drawn = replace(PAIR, things=(replace(STAR, colour=colour), HEXAGON))
    verdict = judge(clean(drawn), task_of(PAIR))
    assert verdict.shape
    assert not verdict.colour
    assert not verdict.right


@pytest.mark.parametrize("shape", ["circle", "square", "triangle", "heart", "cross", "ring"])
def test_a_wrong_shape_is_wrong(shape: str) -> None:
    drawn = replace(PAIR, things=(STAR, replace(HEXAGON, shape=shape)))
    verdict = judge(clean(drawn), task_of(PAIR))
    assert verdict.colour
    assert not verdict.shape
    assert not verdict.right


def test_swapped_places_are_wrong_in_the_relation_alone() -> None:
    drawn = replace(PAIR, things=(replace(STAR, x=92), replace(HEXAGON, x=36)))
    verdict = judge(clean(drawn), task_of(PAIR))
    assert verdict.colour
    assert verdict.shape
    assert not verdict.relation


def test_side_by_side_is_not_above() -> None:
    assert not judge(clean(PAIR), replace(task_of(PAIR), relation="above")).right


def test_a_missing_shape_and_a_blank_picture_are_wrong() -> None:
    alone = replace(PAIR, things=(HEXAGON,))
    assert not judge(clean(alone), task_of(PAIR)).count
    blank = np.full((128, 128, 3), NAMED["blue"], np.uint8)
    assert not judge(blank, task_of(PAIR)).right
    assert not judge(blank, task_of(alone)).right


def test_a_wrong_ground_is_wrong() -> None:
    verdict = judge(clean(replace(PAIR, ground="white")), task_of(PAIR))
    assert not verdict.ground
    assert not verdict.right


def test_a_wrong_size_and_place_are_seen_apart_from_the_bar() -> None:
    scene = Scene("white", (Thing("circle", "blue", "big", 64, 64, 27.0),), "middle", None)
    asked = replace(task_of(scene), things=(Wanted("circle", "blue", "small"),), place="left")
    verdict = judge(clean(scene), asked)
    assert verdict.right
    assert not verdict.size
    assert not verdict.place


def test_a_blotch_makes_a_picture_unclean() -> None:
    picture = clean(PAIR).copy()
    picture[5:11, 5:11] = NAMED["white"]
    assert not judge(picture, task_of(PAIR)).clean


def test_noise_is_no_shape() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (128, 128, 3), np.uint8)
    assert not judge(noise, task_of(PAIR)).right
