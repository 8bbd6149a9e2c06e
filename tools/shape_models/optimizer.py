"""One flat 32-bit master copy of all weights, with Adam, Muon and a running mean.

The modules run in a low precision on views of one flat buffer, so that a step is a handful of
large kernels: a whole step, forward, backward and update, fits one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ALIGNMENT = 64
"""Each weight starts at a multiple of this many numbers, so that kernels can load wide."""

_ADAM_ONLY = (
    "embedding",
    "heads",
    "conv_in",
    "conv_out",
    "proj_out",
    "pos_embed",
    "text",
    "norm1",
    "norm_out",
    "time_emb",
    "time_text_embed",
    "context_embedder",
    "lora",
)
"""Weights whose name holds one of these are no inner matrices: Muon leaves them to Adam."""

Loss = Callable[[], tuple[Tensor, Tensor]]
"""Gives the loss to descend and a second number to watch."""


@dataclass(frozen=True)
class Settings:
    """Adam's and Muon's constants."""

    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.01
    gradient_norm: float = 1.0
    mean_decay: float = 0.999
    muon: bool = True


@dataclass(frozen=True)
class _Slot:
    name: str
    parameter: nn.Parameter
    start: int
    channels_last: bool

    @property
    def end(self) -> int:
        return self.start + self.parameter.numel()

    def view(self, flat: Tensor) -> Tensor:
        part = flat[self.start : self.end]
        if self.channels_last:
            o, i, h, w = self.parameter.shape
            return part.view(o, h, w, i).permute(0, 3, 1, 2)
        return part.view(self.parameter.shape)

    def flatten(self, tensor: Tensor) -> Tensor:
        return (tensor.permute(0, 2, 3, 1) if self.channels_last else tensor).reshape(-1)


class FlatOptimizer:
    """Trains every parameter of `modules` that requires a gradient."""

    def __init__(
        self,
        modules: dict[str, nn.Module],
        device: torch.device,
        settings: Settings,
        channels_last: bool = False,
    ) -> None:
        self.device, self.settings = device, settings
        self.low = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.slots: list[_Slot] = []
        start = 0
        for key, module in modules.items():
            for name, parameter in module.named_parameters():
                if not parameter.requires_grad:
                    continue
                last = channels_last and parameter.dim() == 4
                self.slots.append(_Slot(f"{key}.{name}", parameter, start, last))
                start += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        self.master = torch.zeros(start, device=device)
        self.decayed = torch.zeros(start, device=device)
        for slot in self.slots:
            weights = slot.parameter.detach().to(device).float()
            self.master[slot.start : slot.end] = slot.flatten(weights)
            if slot.parameter.dim() >= 2:
                self.decayed[slot.start : slot.end] = 1
        self.weights = self.master.to(self.low)
        for module in modules.values():
            module.to(device)
            for parameter in module.parameters():
                if not parameter.requires_grad:
                    parameter.data = parameter.data.to(self.low)
        for slot in self.slots:
            slot.parameter.data = slot.view(self.weights)
        self._pads = [
            torch.zeros(-slot.parameter.numel() % ALIGNMENT, device=device, dtype=self.low)
            for slot in self.slots
        ]
        self.first = torch.zeros_like(self.master)
        self.second = torch.zeros_like(self.master)
        self.momentum = torch.zeros_like(self.master)
        self.mean = self.master.clone()
        self.steps = torch.zeros((), device=device)
        self.rate = torch.zeros((), device=device)
        self.watched = torch.zeros(3, device=device)
        self._groups = self._matrices_by_shape() if settings.muon else {}

    def _matrices_by_shape(self) -> dict[tuple[int, int], list[int]]:
        groups: dict[tuple[int, int], list[int]] = {}
        for slot in self.slots:
            if slot.parameter.dim() < 2 or any(part in slot.name for part in _ADAM_ONLY):
                continue
            rows = slot.parameter.shape[0]
            shape = (rows, slot.parameter.numel() // rows)
            groups.setdefault(shape, []).append(slot.start)
        return groups

    def step(self, loss_of: Loss) -> None:
        """One step down `loss_of`; nothing in it waits for the device."""
        loss, watched = loss_of()
        gradients = torch.autograd.grad(
            loss, [slot.parameter for slot in self.slots], allow_unused=True
        )
        parts = []
        for gradient, slot, pad in zip(gradients, self.slots, self._pads, strict=True):
            known = torch.zeros_like(slot.parameter) if gradient is None else gradient
            parts += [slot.flatten(known).to(self.low), pad]
        with torch.no_grad():
            self._descend(torch.cat(parts).float(), loss.detach(), watched.detach())

    def _descend(self, gradient: Tensor, loss: Tensor, watched: Tensor) -> None:
        s = self.settings
        norm = gradient.norm()
        gradient = gradient * (s.gradient_norm / (norm + 1e-6)).clamp(max=1.0)
        gradient = torch.where(torch.isfinite(norm), gradient, torch.zeros_like(gradient))
        self.steps += 1
        self.first.lerp_(gradient, 1 - s.beta1)
        self.second.mul_(s.beta2).addcmul_(gradient, gradient, value=1 - s.beta2)
        first = self.first / (1 - s.beta1**self.steps)
        second = self.second / (1 - s.beta2**self.steps)
        update = first / (second.sqrt() + 1e-8)
        if self._groups:
            self._orthogonalise(gradient, update)
        update = update + s.weight_decay * self.master * self.decayed
        self.master.sub_(update * self.rate)
        self.weights.copy_(self.master)
        decay = torch.clamp((1 + self.steps) / (10 + self.steps), max=s.mean_decay)
        self.mean.lerp_(self.master, 1 - decay)
        now = torch.stack([loss.float(), watched.float(), norm])
        self.watched.lerp_(now, 0.02)

    def _orthogonalise(self, gradient: Tensor, update: Tensor) -> None:
        """Muon: inner matrices move along the orthogonalised momentum (Newton and Schulz's
        iteration with Keller Jordan's coefficients), matrices of one shape together."""
        self.momentum.mul_(0.95).add_(gradient)
        looked_ahead = gradient + 0.95 * self.momentum
        for (rows, columns), starts in self._groups.items():
            size = rows * columns
            x = torch.stack([looked_ahead[k : k + size].view(rows, columns) for k in starts])
            x = x.to(self.low)
            x = x.mT if rows > columns else x
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                gram = x @ x.mT
                x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
            x = x.mT if rows > columns else x
            x = x.float() * (0.2 * max(rows, columns) ** 0.5)
            for k, start in enumerate(starts):
                update[start : start + size] = x[k].reshape(-1)

    def state(self) -> dict[str, Tensor]:
        """Everything that a step changes; the tensors themselves, not copies."""
        return {
            "master": self.master,
            "first": self.first,
            "second": self.second,
            "momentum": self.momentum,
            "mean": self.mean,
            "steps": self.steps,
            "watched": self.watched,
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Puts a saved state back, in place."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])
        self.weights.copy_(self.master)

    def run_on_mean(self) -> None:
        """Makes the modules compute with the running mean, as the shipped weights do."""
        self.weights.copy_(self.mean)

    def export(self) -> dict[str, Tensor]:
        """The running mean of each weight, by `module.parameter`, in 32 bits on the CPU."""
        return {
            slot.name: slot.view(self.mean).detach().cpu().contiguous().clone()
            for slot in self.slots
        }
