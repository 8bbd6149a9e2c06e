"""Where models may lie, links followed: for operators who let others write models.toml."""

from collections.abc import Iterator
from pathlib import Path


def strays(path: Path, roots: tuple[Path, ...]) -> Iterator[Path]:
    """Of a model's folder or file, whatever really lies outside of all roots. Without roots
    anything may lie anywhere."""
    if not roots:
        return
    real_roots = [root.resolve() for root in roots]
    for each in _parts(path):
        real = each.resolve()
        if not any(real.is_relative_to(root) for root in real_roots):
            yield each


def _parts(path: Path) -> Iterator[Path]:
    """The folder itself, what is in it, and what is in its components' folders."""
    yield path
    if path.is_dir():
        for part in path.iterdir():
            yield part
            if part.is_dir():
                yield from part.iterdir()
