"""What a run of the switching benchmark works with, and what it has found."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks import keeping
from benchmarks.report import at_most, shown
from benchmarks.switching_peers import PROMPT, SEED
from workshop_gpu.worker.protocol import GenerateParams

FEW_STEPS = 4
_POSSIBLE = 0.95
"""A value below this share of its limit did not do what it says."""


class Found(keeping.Found):
    """What a run has found. `disk` and `bus` are in bytes a second."""

    disk: float = 0.0
    bus: float = 0.0
    pictures: dict[int, set[str]] = msgspec.field(default_factory=dict)
    """Digests of all pictures of so many steps; all of one number should be the same."""


@dataclass
class Run:
    """What a run works with; `found` is what it has found, kept in `kept`."""

    folders: dict[str, Path]
    devices: list[str]
    peers: list[str]
    small: bool
    work: Path
    kept: Path

    def __post_init__(self) -> None:
        self._keeping = keeping.Keeping(self.kept, Found)

    @property
    def found(self) -> Found:
        return self._keeping.found

    @property
    def kind(self) -> str:
        return "cpu" if self.devices[0].startswith("cpu") else "cuda"

    @property
    def steps(self) -> int:
        """Of a picture that is drawn while models come and go."""
        return 8 if self.small else 28

    def bytes(self, model: str, part: str = "*") -> int:
        files = {path.resolve() for path in self.folders[model].glob(f"{part}/*.safetensors")}
        return sum(path.stat().st_size for path in files)

    def params(self, steps: int, seed: int = SEED) -> GenerateParams:
        side = 128 if self.small else 1024
        return GenerateParams(
            prompt=PROMPT, seed=seed, steps=steps, guidance=3.0, width=side, height=side
        )

    def attempt(self, name: str, action: Callable[[], None]) -> None:
        """A part that was not done before; one that breaks off takes none of the rest with it."""
        self._keeping.attempt(name, action)

    def pairs(self, other: str) -> list[tuple[str, str]]:
        """Who leaves and who comes: from large to the other and back, a few times."""
        return [("large", other), (other, "large")] * (1 if self.small else 2)

    def saw(self, steps: int, picture: str) -> None:
        self.found.pictures.setdefault(steps, set()).add(picture)

    def add(self, name: str, value_s: float, factor: float = 0, limit_s: float = 0) -> None:
        """A row in seconds. The bar is `factor` times the limit, or `factor` itself without one."""
        limit = limit_s or None
        bar = factor * (limit_s or 1.0)
        if limit_s and value_s < _POSSIBLE * limit_s and not self.small:
            self.found.broken += 1
            self.found.notes.append(
                f'"{name}" is below what the machine allows: it measures nothing.'
            )
        print(f"{name}: {value_s:.3f} s", f"(limit {limit_s:.3f})" if limit_s else "", flush=True)
        if factor and not self.small:
            self.found.rows.append(at_most(name, value_s, "s", bar, limit))
        else:
            self.found.rows.append(shown(name, value_s, "s", limit))

    def add_gb(self, name: str, size_bytes: float) -> None:
        print(f"{name}: {size_bytes / 1e9:.1f} GB", flush=True)
        self.found.rows.append(shown(name, size_bytes / 1e9, "GB"))

    def note(self, text: str) -> None:
        print(text, flush=True)
        self.found.notes.append(text)
