"""The vocabulary: what can be drawn, and the words people use for it."""

from __future__ import annotations

from typing import Final

SIZE_PX: Final = 128
"""Side of every picture, in pixels."""

PALETTE: Final[dict[str, tuple[int, int, int]]] = {
    "red": (220, 40, 40),
    "orange": (245, 140, 30),
    "yellow": (250, 220, 50),
    "green": (40, 160, 70),
    "cyan": (60, 200, 220),
    "blue": (40, 80, 210),
    "purple": (130, 60, 180),
    "pink": (245, 140, 190),
    "white": (250, 250, 250),
    "black": (25, 25, 25),
}
COLOURS: Final = tuple(PALETTE)
SHAPES: Final = ("circle", "square", "triangle", "star", "heart", "hexagon", "cross", "ring")
SIZES: Final = ("small", "medium", "big")
RELATIONS: Final = ("left", "right", "above", "below")
PLACES: Final = ("left", "right", "top", "bottom", "middle")

# Of each tuple one word is drawn with equal chance, so a repeated word is a more common one.
COLOUR_WORDS: Final[dict[str, tuple[str, ...]]] = {
    **{name: (name,) for name in PALETTE},
    "cyan": ("cyan", "cyan", "cyan", "turquoise"),
    "purple": ("purple", "purple", "purple", "violet"),
}
SHAPE_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "circle": ("circle", "circle", "circle", "disc", "disk", "dot"),
    "square": ("square", "square", "square", "box"),
    "triangle": ("triangle",),
    "star": ("star",),
    "heart": ("heart",),
    "hexagon": ("hexagon",),
    "cross": ("cross", "cross", "cross", "plus", "plus sign"),
    "ring": ("ring", "ring", "ring", "donut", "doughnut", "hoop"),
}
SIZE_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "small": ("small", "small", "small", "little", "tiny"),
    "medium": ("medium",),
    "big": ("big", "big", "large", "large", "huge"),
}
RELATION_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "left": ("to the left of", "left of", "on the left of", "at the left of"),
    "right": ("to the right of", "right of", "on the right of", "at the right of"),
    "above": ("above", "above", "over", "on top of"),
    "below": ("below", "below", "under", "beneath", "underneath"),
}
PLACE_WORDS: Final[dict[str, tuple[str, ...]]] = {
    "left": ("on the left", "at the left", "to the left", "on the left side"),
    "right": ("on the right", "at the right", "to the right", "on the right side"),
    "top": ("at the top", "on top", "above", "in the upper half"),
    "bottom": ("at the bottom", "on the bottom", "below", "in the lower half"),
    "middle": ("in the middle", "in the center", "in the centre", "at the center", "centered"),
}
GROUND_WORDS: Final = ("background", "background", "background", "ground", "backdrop", "canvas")
OPENINGS: Final = (
    "draw",
    "please draw",
    "paint",
    "show me",
    "a picture of",
    "a drawing of",
    "an image of",
    "there is",
)
OTHER_WORDS: Final = (
    "a an the and with is are of on in at to by next beside it that i me my want two one shape "
    "shapes against colored coloured color colour photo illustration simple flat centre no not side"
)


def default_ground(colours: tuple[str, ...]) -> str:
    """The ground of a prompt that names none: the first of three that no shape hides on."""
    return next(ground for ground in ("white", "black", "blue") if ground not in colours)


def all_words() -> list[str]:
    """Every word that training prompts use, sorted; each becomes one token."""
    phrases: list[str] = [*COLOURS, *GROUND_WORDS, *OPENINGS, OTHER_WORDS]
    for table in (COLOUR_WORDS, SHAPE_WORDS, SIZE_WORDS, RELATION_WORDS, PLACE_WORDS):
        for words in table.values():
            phrases.extend(words)
    return sorted({word for phrase in phrases for word in phrase.split()})
