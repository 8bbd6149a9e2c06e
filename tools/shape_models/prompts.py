"""Prompts for scenes, in many word orders, and the facts that each prompt fixes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from shape_models.held_out import is_held_out
from shape_models.scenes import Scene, Thing, first_along, size_label
from shape_models.words import (
    COLOUR_WORDS,
    COLOURS,
    GROUND_WORDS,
    OPENINGS,
    PLACE_WORDS,
    PLACES,
    RELATION_WORDS,
    SHAPE_WORDS,
    SHAPES,
    SIZE_WORDS,
    default_ground,
)

FACTS = (3, 9, 11, 4, 9, 11, 4, 3, 11, 6)
"""How many values each fact has: count; shape, colour and size of the first thing in reading
order, and of the second; axis (1 side by side, 2 stacked); ground; place. 0 stands for unsaid."""

DROPPED_WORD = 0.03
"""Chance that a colour or a shape is not said, so that such prompts also give a picture."""


@dataclass
class _Saying:
    """What has been said so far; `facts` are in the order of `FACTS`."""

    articles: bool
    facts: list[int] = field(default_factory=lambda: [0] * len(FACTS))


def _article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def _thing(rng: random.Random, thing: Thing, slot: int, saying: _Saying) -> str:
    """The words for one thing; writes what they fix into slot 0 or 1 of the facts."""
    shape = rng.choice(SHAPE_WORDS[thing.shape])
    colour = rng.choice(COLOUR_WORDS[thing.colour])
    size = rng.choice(SIZE_WORDS[thing.size])
    facts = [SHAPES.index(thing.shape) + 1, COLOURS.index(thing.colour) + 1, 0]
    if thing.size == "medium" and rng.random() > 0.1:
        size = ""
    else:
        facts[2] = size_label(thing.size)
    if rng.random() < DROPPED_WORD:
        colour, facts[1] = "", 0
    if rng.random() < DROPPED_WORD / 2:
        shape, facts[0] = "shape", 0
    saying.facts[1 + 3 * slot : 4 + 3 * slot] = facts
    form = rng.random()
    if colour and form < 0.07:
        text = f"{size} {shape} in {colour}"
    elif colour and form < 0.13:
        said = f"{size} and {colour}" if size else colour
        text = f"{shape} that is {said}"
    elif form < 0.22:
        text = f"{colour} {size} {shape}"
    elif colour and form < 0.26:
        text = f"{size} {colour} colored {shape}"
    else:
        text = f"{size} {colour} {shape}"
    text = " ".join(text.split())
    return _article(text) if saying.articles else text


def _single(rng: random.Random, scene: Scene, saying: _Saying) -> str:
    text = _thing(rng, scene.things[0], 0, saying)
    assert scene.place is not None
    if scene.place == "middle" and rng.random() > 0.3:
        return text
    saying.facts[9] = PLACES.index(scene.place) + 1
    where = rng.choice(PLACE_WORDS[scene.place])
    order = rng.random()
    if order < 0.75:
        return f"{text} {where}"
    if order < 0.85:
        return f"{text} , {where}"
    return f"{where} , {text}" if order < 0.93 else f"{where} {text}"


def _pair(rng: random.Random, scene: Scene, saying: _Saying) -> str:
    relation = scene.relation
    assert relation is not None
    order = first_along(scene)
    first, second = (_thing(rng, t, order.index(t), saying) for t in scene.things)
    saying.facts[7] = 1 if relation in ("left", "right") else 2
    how = rng.choice(RELATION_WORDS[relation])
    form = rng.random()
    if relation == "left" and form < 0.25:
        # With no relation said, the first thing stands on the left.
        return rng.choice(
            (
                f"{first} and {second}",
                f"{first} and {second}",
                f"{first} next to {second}",
                f"{first} beside {second}",
                f"{first} , {second}",
                f"two shapes : {first} and {second}",
            )
        )
    if form < 0.35:
        opposite = {"left": "right", "right": "left", "above": "bottom", "below": "top"}[relation]
        here = {"above": "top", "below": "bottom"}.get(relation, relation)
        one, other = rng.choice(PLACE_WORDS[here][:2]), rng.choice(PLACE_WORDS[opposite][:2])
        joint = rng.choice(("and", "and", ","))
        if rng.random() < 0.7:
            return f"{first} {one} {joint} {second} {other}"
        return f"{one} {first} {joint} {other} {second}"
    if form < 0.42:
        return rng.choice((f"{how} {second} is {first}", f"{how} {second} , {first}"))
    if form < 0.47:
        return f"two shapes : {first} {how} {second}"
    if form < 0.53:
        return f"{first} is {how} {second}"
    return f"{first} {how} {second}"


def _with_ground(rng: random.Random, scene: Scene, body: str, saying: _Saying) -> str:
    """Adds the ground, in one of many places; leaves it out only where it is the default."""
    saying.facts[8] = COLOURS.index(scene.ground) + 1
    usual = default_ground(tuple(t.colour for t in scene.things))
    every_colour_said = all(saying.facts[2 + 3 * k] for k in range(len(scene.things)))
    opening = rng.choice(OPENINGS) + " " if rng.random() < 0.12 else ""
    if scene.ground == usual and every_colour_said and rng.random() < 0.6:
        return opening + body
    colour = rng.choice(COLOUR_WORDS[scene.ground])
    noun = rng.choice(GROUND_WORDS)
    ground = _article(f"{colour} {noun}") if saying.articles else f"{colour} {noun}"
    form = rng.random()
    if form < 0.45:
        return f"{opening}{body} on {ground}"
    if form < 0.55:
        return f"{opening}{body} , {colour} {noun}"
    if form < 0.63:
        return f"{opening}{body} on {colour}"
    if form < 0.68:
        return f"{opening}{body} against {ground}"
    if form < 0.72:
        return f"{opening}{body} . the {noun} is {colour}"
    if form < 0.82:
        return f"on {ground} , {opening}{body}"
    if form < 0.90:
        return f"{colour} {noun} {rng.choice(('.', ',', ':'))} {opening}{body}"
    return f"{ground} with {body}"


def write_prompt(rng: random.Random, scene: Scene) -> tuple[str, list[int]]:
    """A prompt for `scene` that training may use, and the facts it fixes (see `FACTS`)."""
    while True:
        saying = _Saying(articles=rng.random() < 0.8)
        saying.facts[0] = len(scene.things)
        say = _single if len(scene.things) == 1 else _pair
        prompt = _with_ground(rng, scene, say(rng, scene, saying), saying)
        prompt = prompt.replace(" ,", ",").replace(" .", ".").replace(" :", ":")
        if not is_held_out(prompt):
            return prompt, saying.facts
