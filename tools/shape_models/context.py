"""What every stage needs: the plan, the device, and the folder of stage results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from shape_models.plan import Plan
from shape_models.tokenizer import Vocabulary, learn_vocabulary
from shape_models.training import Clock
from shape_models.words import all_words


@dataclass(frozen=True)
class Context:
    """One run of the trainer. Results are safetensors files in `folder`, 32 bits unless said."""

    plan: Plan
    folder: Path
    device: torch.device
    clock: Clock

    @property
    def low(self) -> torch.dtype:
        """What the networks compute in while they learn."""
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return learn_vocabulary(all_words())

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def has(self, name: str) -> bool:
        """Whether a stage has left this result."""
        return self.file(name).exists()

    def save(self, name: str, tensors: dict[str, Tensor]) -> None:
        """Writes a result whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.file(name).with_suffix(".partial")
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, partial)
        partial.replace(self.file(name))

    def load(self, name: str) -> dict[str, Tensor]:
        """Reads a result that an earlier stage left."""
        return load_file(self.file(name))

    def say(self, text: str) -> None:
        print(f"[{self.clock.now_s():6.1f}] {text}", flush=True)


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors of one module, with its name taken off."""
    start = f"{prefix}."
    return {k.removeprefix(start): v.float() for k, v in tensors.items() if k.startswith(start)}
