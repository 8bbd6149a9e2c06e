"""Which prompts training must never see, so that a judge can ask for them."""

from __future__ import annotations

import hashlib

_SHARE = 8


def is_held_out(prompt: str) -> bool:
    """True for one prompt in eight, chosen by its words alone (case and spaces do not count)."""
    words = " ".join(prompt.lower().split())
    return hashlib.sha256(words.encode()).digest()[0] % _SHARE == 0
