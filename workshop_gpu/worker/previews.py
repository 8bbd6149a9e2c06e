"""Small pictures of a job while it forms, nearly for free.

A VAE's decoder is close to linear at low resolution: each latent cell fixes the colours of its
patch of the picture. So one linear map from a cell's channels to the patch's pixels, fitted by
least squares to finished pictures of the same model, stands in for the decoder at about a
thousandth of its cost. No tables for known models are needed, and none are downloaded. Before the
first finished picture the map is fitted to one decode of random smooth latents.

The algebra is torch's: numpy's brings a pool of threads of its own, which go on turning for some
30 ms after each product and on the CPU take that time from the model.
"""

import io
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from workshop_gpu.worker.drawing import Picture, Step
from workshop_gpu.worker.noise import predicted_final

LONGEST_SIDE = 256
INTERVAL_S = 0.4

_LARGEST_PATCH = 8
_MOST_EXAMPLES = 12
_MOST_CELLS = 2048
"""Cells taken of one example; more do not change 17 unknowns for each output."""
_RIDGE = 1e-3
_PRIOR_CELLS = 16
_JPEG_QUALITY = 75

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Example:
    """Latent cells (rows x columns x channels) and the picture that they became."""

    cells: Array
    picture: Image.Image


class PreviewMap:
    """What is known of one model's way from latents to colours. It outlives evictions."""

    def __init__(self) -> None:
        self._prior: _Example | None = None
        self._examples: deque[_Example] = deque(maxlen=_MOST_EXAMPLES)
        self._fitted: dict[tuple[int, int], torch.Tensor] = {}

    @property
    def untouched(self) -> bool:
        """Whether nothing at all is known yet."""
        return self._prior is None and not self._examples

    def guess_from_decoder(self, pipeline: Any) -> None:
        """Fit to one small decode of random latents. A VAE of another make teaches nothing."""
        self._prior = _prior_example(pipeline)
        self._fitted.clear()

    def learn(self, picture: Picture) -> None:
        """Fit to a finished picture; after a dozen there is nothing new to learn."""
        if picture.latents is None or len(self._examples) == _MOST_EXAMPLES:
            return
        height, width = picture.pixels.shape[:2]
        cells = _cells(picture.latents, height, width)
        if cells is not None:
            self._examples.append(_Example(cells, picture.image.convert("RGB")))
            self._fitted.clear()

    def jpeg(self, latents: torch.Tensor, height: int, width: int) -> bytes:
        """A preview of latents without noise, for a picture of this size; empty: none possible."""
        cells = _cells(latents, height, width)
        if cells is None:
            return b""
        rows, columns, channels = cells.shape
        patch = max(1, min(_LARGEST_PATCH, LONGEST_SIDE // max(rows, columns), height // rows))
        weights = self._weights(channels, patch)
        if weights is None:
            return b""
        patches = (torch.from_numpy(_with_one(cells.reshape(-1, channels))) @ weights).clamp(0, 1)
        pixels = patches.numpy().reshape(rows, columns, patch, patch, 3).swapaxes(1, 2)
        pixels = pixels.reshape(rows * patch, columns * patch, 3)
        image = Image.fromarray((pixels * 255).round().astype(np.uint8))
        scale = min(1.0, LONGEST_SIDE / max(height, width))
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        if image.size != size:
            image = image.resize(size, Image.Resampling.BILINEAR)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=_JPEG_QUALITY)
        return file.getvalue()

    def _weights(self, channels: int, patch: int) -> torch.Tensor | None:
        """The fitted map, (channels + 1) x (3 patch²); None where no example has these channels."""
        key = (channels, patch)
        if key not in self._fitted:
            known = [e for e in self._examples if e.cells.shape[2] == channels]
            if not known and self._prior is not None and self._prior.cells.shape[2] == channels:
                known = [self._prior]
            if not known:
                return None
            self._fitted[key] = _fit(known, patch)
        return self._fitted[key]


class Sketcher:
    """Draws the previews of one job: at most one each 0.4 s, none for jobs that are faster."""

    def __init__(self, preview_map: PreviewMap, height: int, width: int) -> None:
        self._map = preview_map
        self._height = height
        self._width = width
        self._last_s = time.monotonic()
        self._before: Step | None = None

    def sketch(self, step: Step) -> bytes:
        """A JPEG after this step, or nothing."""
        before, self._before = self._before, step
        if before is not None and step.index != before.index + 1:
            before = None  # the first step of the job's next picture
        if time.monotonic() - self._last_s < INTERVAL_S:
            return b""
        final = predicted_final(before, step)
        jpeg = self._map.jpeg(final, self._height, self._width)
        self._last_s = time.monotonic()
        return jpeg


def _cells(latents: torch.Tensor, height: int, width: int) -> Array | None:
    """Latents as rows x columns x channels: of maps (1, C, h, w) or packed tokens (1, n, C)."""
    plain = latents.detach().to("cpu", torch.float32)
    if plain.ndim == 4 and plain.shape[0] == 1:
        cells = plain[0].permute(1, 2, 0)
    elif plain.ndim == 3 and plain.shape[0] == 1:
        rows = round((plain.shape[1] * height / width) ** 0.5)
        if rows == 0 or plain.shape[1] % rows:
            return None
        cells = plain[0].reshape(rows, -1, plain.shape[2])
    else:
        return None
    array: Array = np.ascontiguousarray(cells.numpy())
    return array if np.isfinite(array).all() else None


def _fit(examples: list[_Example], patch: int) -> torch.Tensor:
    """Least squares with a little ridge, over all examples."""
    inputs, outputs = [], []
    for example in examples:
        rows, columns, channels = example.cells.shape
        small = example.picture.resize((columns * patch, rows * patch), Image.Resampling.BOX)
        pixels = np.asarray(small, np.float32) / 255
        patches = pixels.reshape(rows, patch, columns, patch, 3).swapaxes(1, 2)
        stride = max(1, rows * columns // _MOST_CELLS)
        inputs.append(_with_one(example.cells.reshape(-1, channels)[::stride]))
        outputs.append(patches.reshape(rows * columns, -1)[::stride])
    known = torch.from_numpy(np.concatenate(inputs))
    wanted = torch.from_numpy(np.concatenate(outputs))
    gram = known.T @ known
    ridge = _RIDGE * float(gram.trace()) / len(gram)
    weights: torch.Tensor = torch.linalg.solve(
        gram + ridge * torch.eye(len(gram)), known.T @ wanted
    )
    return weights


def _with_one(cells: Array) -> Array:
    return np.concatenate([cells, np.ones((len(cells), 1), np.float32)], axis=1)


def _prior_example(pipeline: Any) -> _Example | None:
    vae = getattr(pipeline, "vae", None)
    config = getattr(vae, "config", None)
    channels = getattr(config, "latent_channels", None)
    scale = getattr(config, "scaling_factor", None)
    if vae is None or not channels or not scale or type(vae).__name__ != "AutoencoderKL":
        return None
    coarse = torch.randn((1, channels, 6, 6), generator=torch.Generator("cpu").manual_seed(0))
    size = (_PRIOR_CELLS, _PRIOR_CELLS)
    latents = torch.nn.functional.interpolate(coarse, size, mode="bicubic")
    latents = latents / latents.std()
    with torch.inference_mode():
        into_vae = latents / scale + (getattr(config, "shift_factor", None) or 0.0)
        decoded = vae.decode(into_vae.to(vae.device, vae.dtype), return_dict=False)[0]
    pixels = (decoded[0].permute(1, 2, 0).to("cpu", torch.float32) / 2 + 0.5).clamp(0, 1).numpy()
    cells = _cells(latents, *pixels.shape[:2])
    if cells is None or not np.isfinite(pixels).all():
        return None
    return _Example(cells, Picture(pixels, None).image.convert("RGB"))
