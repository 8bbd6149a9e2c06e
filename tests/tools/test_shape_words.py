"""What the models learn from: prompts, their facts, and the tokenizer."""

from __future__ import annotations

import random

from shape_judge.tasks import make_tasks
from shape_models.held_out import is_held_out
from shape_models.prompts import FACTS, write_prompt
from shape_models.scenes import draw_scene
from shape_models.tokenizer import learn_vocabulary
from shape_models.words import COLOURS, SHAPES, SIZE_PX, all_words, default_ground


def test_training_never_writes_a_prompt_that_the_judge_may_ask() -> None:
    rng = random.Random(1)
    written = {write_prompt(rng, draw_scene(rng))[0] for _ in range(4000)}
    asked = {task.prompt for things in (1, 2) for task in make_tasks(100, things)}
    assert len(asked) == 200
    assert all(is_held_out(prompt) for prompt in asked)
    assert not any(is_held_out(prompt) for prompt in written)


def test_held_out_does_not_depend_on_case_or_spaces() -> None:
    prompts = [f"a {colour} {shape}" for colour in COLOURS for shape in SHAPES]
    held = [is_held_out(prompt) for prompt in prompts]
    assert held == [is_held_out(f"  {prompt.upper()} ") for prompt in prompts]
    assert 0 < sum(held) < len(prompts) / 3


def test_the_judge_asks_the_same_every_time() -> None:
    assert make_tasks(20, 2) == make_tasks(20, 2)


def test_every_fact_of_a_prompt_is_in_its_range_and_says_what_the_scene_shows() -> None:
    rng = random.Random(2)
    for _ in range(500):
        scene = draw_scene(rng)
        _, facts = write_prompt(rng, scene)
        assert len(facts) == len(FACTS)
        assert all(0 <= fact < values for fact, values in zip(facts, FACTS, strict=True))
        assert facts[0] == len(scene.things)
        assert facts[8] == COLOURS.index(scene.ground) + 1


def test_a_prompt_without_ground_stands_for_one_that_hides_no_shape() -> None:
    assert default_ground(("red",)) == "white"
    assert default_ground(("white",)) == "black"
    assert default_ground(("white", "black")) == "blue"


def test_shapes_stay_inside_the_picture_and_off_their_ground() -> None:
    rng = random.Random(3)
    for _ in range(500):
        scene = draw_scene(rng)
        for thing in scene.things:
            assert thing.colour != scene.ground
            for centre in (thing.x, thing.y):
                assert thing.radius <= centre <= SIZE_PX - thing.radius


def test_each_word_is_one_token_and_encodes_as_transformers_does() -> None:
    from transformers import CLIPTokenizer

    vocabulary = learn_vocabulary(all_words())
    tokenizer = CLIPTokenizer(
        vocab=dict(vocabulary.tokens),
        merges=list(vocabulary.merges),
        unk_token="<|unk|>",
        model_max_length=32,
    )
    rng = random.Random(4)
    for _ in range(100):
        prompt, _ = write_prompt(rng, draw_scene(rng))
        theirs = tokenizer(prompt, padding="max_length", max_length=32, truncation=True)
        assert theirs.input_ids == vocabulary.encode(prompt).tolist()
