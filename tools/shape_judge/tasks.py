"""The judge's own prompts, none of which the training may use, and what each asks for."""

from __future__ import annotations

import random
from dataclasses import dataclass

from shape_models.held_out import is_held_out

from shape_judge.pixels import NAMED
from shape_judge.templates import RADII

SEED = 4711
_ALSO = {
    "circle": "disc",
    "square": "box",
    "cross": "plus",
    "ring": "donut",
    "big": "large",
    "small": "tiny",
    "purple": "violet",
}
_RELATIONS = {
    "left": ("to the left of", "left of"),
    "right": ("to the right of", "right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
}
_PLACES = {
    "left": ("on the left", "on the left side"),
    "right": ("on the right", "on the right side"),
    "top": ("at the top", "above"),
    "bottom": ("at the bottom", "below"),
    "middle": ("in the middle", "in the centre"),
}
_GROUNDS = (
    "{body} on {a_ground} background",
    "{body} on {a_ground} background",
    "{body} on {a_ground} ground",
    "{body}, {ground} background",
    "on {a_ground} background, {body}",
    "{ground} background: {body}",
    "a drawing of {body} on {ground}",
    "draw {body} against {a_ground} background",
)


@dataclass(frozen=True)
class Wanted:
    """One thing that a prompt asks for; `size` is None where it does not say."""

    shape: str
    colour: str
    size: str | None


@dataclass(frozen=True)
class Task:
    """A prompt and all that it fixes. `relation`: where the first is, seen from the second."""

    prompt: str
    things: tuple[Wanted, ...]
    ground: str | None
    place: str | None
    relation: str | None


def _said(rng: random.Random, word: str) -> str:
    return _ALSO[word] if word in _ALSO and rng.random() < 0.2 else word


def _phrase(rng: random.Random, thing: Wanted) -> str:
    words = [_said(rng, word) for word in (thing.size, thing.colour, thing.shape) if word]
    return _with_article(" ".join(words))


def _with_article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def _thing(rng: random.Random, ground: str) -> Wanted:
    colour = rng.choice([name for name in NAMED if name != ground])
    return Wanted(rng.choice(list(RADII)), colour, rng.choice(("small", "big", None, None)))


def _one(rng: random.Random, ground: str) -> Task:
    thing = _thing(rng, ground)
    body, place = _phrase(rng, thing), None
    if rng.random() < 0.6:
        place = rng.choice(list(_PLACES))
        body = f"{body} {rng.choice(_PLACES[place])}"
    return Task(body, (thing,), ground, place, None)


def _two(rng: random.Random, ground: str) -> Task:
    first, second = _thing(rng, ground), _thing(rng, ground)
    relation = rng.choice(list(_RELATIONS))
    how = rng.choice(_RELATIONS[relation])
    one, other = _phrase(rng, first), _phrase(rng, second)
    body = f"{one} {how} {other}"
    if rng.random() < 0.15:
        body = f"two shapes: {body}"
    return Task(body, (first, second), ground, None, relation)


def make_tasks(count: int, things: int) -> list[Task]:
    """`count` fixed tasks with one or two things; one in ten names no ground."""
    rng = random.Random(SEED + things)
    tasks: list[Task] = []
    while len(tasks) < count:
        ground = rng.choice(list(NAMED))
        task = (_one if things == 1 else _two)(rng, ground)
        named = rng.random() < 0.9
        prompt = rng.choice(_GROUNDS).format(
            body=task.prompt, ground=ground, a_ground=_with_article(ground)
        )
        if not named:
            prompt = task.prompt
        if is_held_out(prompt) and all(prompt != other.prompt for other in tasks):
            kept = ground if named else None
            tasks.append(Task(prompt, task.things, kept, task.place, task.relation))
    return tasks
