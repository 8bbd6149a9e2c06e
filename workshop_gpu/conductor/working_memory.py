"""How many bytes a job needs beside the weights: a formula before the first run, then a fit.

Peaks are measured per denoiser (models with the same one need the same) and placement, over the
job's units (pixels × batch).
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from workshop_gpu.conductor.rungs import TILE_SIDE, Placement

_GB = 1_000_000_000

# The formula: 1.5 GB for each megapixel was measured for pipelines of 4 GB and more
# (SD3.5-Large at 1024 x 1024: peak 28.5 GiB over 27.6 GB of weights, decoding included);
# activations of smaller models shrink with their width, hence with their weights.
_BYTES_PER_PIXEL = 1500
_SAFETY = 1.15
_FULL_SIZE_BYTES = 4 * _GB
_BASE_MAX_BYTES = _GB // 2

# Little on top where sizes as large were measured; more where the fit is carried over to larger
# pictures, because attention may grow faster than the picture.
_MEASURED_SAFETY = 1.1
_LARGER_SAFETY = 1.25

_SIZES_KEPT = 64


def by_formula(weights_bytes: int, units: int) -> int:
    """Working memory of a model that never ran: grows with the picture and, up to 4 GB of
    weights, with the model. 40 MB at 128 × 128: about 10 MB; 28 GB at 1024 × 1024: 2.3 GB."""
    scale = min(1.0, weights_bytes / _FULL_SIZE_BYTES)
    activations = int(_BYTES_PER_PIXEL * units * _SAFETY * scale)
    return activations + min(_BASE_MAX_BYTES, weights_bytes // 4)


class Fit(NamedTuple):
    """A straight line over measured peaks, with the most by which a peak lies above it."""

    base_bytes: float
    bytes_per_unit: float
    residual_bytes: float


def fit(peaks: Mapping[int, int]) -> Fit:
    """The line of least squares through peaks (bytes by units); neither base nor slope is
    negative, because more pictures never need less."""
    count = len(peaks)
    mean_units = sum(peaks) / count
    mean_bytes = sum(peaks.values()) / count
    spread = sum((units - mean_units) ** 2 for units in peaks)
    slope = 0.0
    if spread:
        joint = sum((units - mean_units) * (peak - mean_bytes) for units, peak in peaks.items())
        slope = max(0.0, joint / spread)
    base = mean_bytes - slope * mean_units
    if base < 0 or not spread:
        base = 0.0
        products = sum(units * peak for units, peak in peaks.items())
        slope = products / sum(units**2 for units in peaks)
    residual = max(peak - base - slope * units for units, peak in peaks.items())
    return Fit(base, slope, max(0.0, residual))


class Peaks:
    """The peaks that were measured for one denoiser in one placement."""

    def __init__(self, measured: Mapping[int, int] | None = None) -> None:
        kept = (measured or {}).items()
        self._bytes = {units: peak for units, peak in kept if units > 0 and peak > 0}
        self._fit = fit(self._bytes) if self._bytes else Fit(0.0, 0.0, 0.0)

    def __bool__(self) -> bool:
        return bool(self._bytes)

    @property
    def measured(self) -> dict[int, int]:
        """The largest peak in bytes of each size."""
        return dict(self._bytes)

    def learn(self, units: int, peak_bytes: int) -> bool:
        """Notes a measured peak; says whether it is the first of this size, or the largest."""
        if peak_bytes <= self._bytes.get(units, 0):
            return False
        self._bytes[units] = peak_bytes
        if len(self._bytes) > _SIZES_KEPT:
            del self._bytes[next(iter(self._bytes))]
        self._fit = fit(self._bytes)
        return True

    def bytes_for(self, units: int) -> int:
        """What a job of so many units needs. A size that was measured is believed; with one size
        alone a smaller job is taken to need as much."""
        if units in self._bytes:
            return int(self._bytes[units] * _MEASURED_SAFETY)
        largest = max(self._bytes)
        if len(self._bytes) == 1 and units < largest:
            return int(self._bytes[largest] * _MEASURED_SAFETY)
        needed = self._fit.base_bytes + self._fit.bytes_per_unit * units + self._fit.residual_bytes
        return int(needed * (_LARGER_SAFETY if units > largest else _MEASURED_SAFETY))


# A text encoder's activations do not depend on the picture: 512 tokens of T5-XXL take less.
_ENCODE_MAX_BYTES = 300_000_000
# Beyond a tile the picture costs what the denoiser needs: 0.4 of the whole was the least that was
# seen (0.85 the most, for pictures just above a tile).
_TILE_UNITS = TILE_SIDE * TILE_SIDE
_TILED_SHARE = 0.4
_SLICED_SHARE = 0.85


class Activations(msgspec.Struct, frozen=True):
    """What the computation of one job needs on the device, by phase, weights left out.

    `plain_bytes` is the most of any phase when nothing is tiled, for `units` pixels × batch.
    `by_kind` are working bytes that were measured for kinds of placements, the weights that come
    for a while included.
    """

    plain_bytes: int
    units: int
    by_kind: tuple[tuple[str, int], ...] = ()
    beside_bytes: int = 0
    """Come with the job and stay as long as it does, in addition to all of these."""

    @property
    def encode_bytes(self) -> int:
        return min(self.plain_bytes, _ENCODE_MAX_BYTES) + self.beside_bytes

    def denoise(self, placement: Placement) -> int:
        share = _SLICED_SHARE if placement.sliced else 1.0
        return int(self._tiled_bytes * share) + self.beside_bytes

    def decode(self, placement: Placement) -> int:
        plain_bytes = self._tiled_bytes if placement.tiled else self.plain_bytes
        return plain_bytes + self.beside_bytes

    def measured(self, placement: Placement) -> int | None:
        """The working memory of the placement's kind, where it is known."""
        kind = placement.kind
        found = next((size for name, size in self.by_kind if name == kind), None)
        return None if found is None else found + self.beside_bytes

    @property
    def _tiled_bytes(self) -> int:
        """What is left where the VAE's part does not grow with the picture."""
        tile = min(self.units, _TILE_UNITS)
        counted = tile + _TILED_SHARE * (self.units - tile)
        return int(self.plain_bytes * counted / max(1, self.units))
