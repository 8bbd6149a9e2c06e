"""Draws packed scenes with signed distances, on any device, many at once."""

from __future__ import annotations

import enum
import math

import torch
from torch import Tensor

from shape_models.words import PALETTE, SIZE_PX

STROKE_PX = 4.0
"""Width of the line of an outline."""


class Style(enum.Enum):
    """How a shape's inside is painted."""

    FILLED = "filled"
    OUTLINED = "outlined"


def palette(device: torch.device) -> Tensor:
    """The ten colours as [10, 3] in -1 to 1."""
    return torch.tensor(list(PALETTE.values()), device=device, dtype=torch.float32) / 127.5 - 1


def _star(ax_angle: Tensor, radius: Tensor) -> Tensor:
    """Distance to a five-pointed star whose inner corners lie at 0.45 of its outer ones."""
    fifth = 2 * math.pi / 5
    angle = (torch.remainder(ax_angle + fifth / 2, fifth) - fifth / 2).abs()
    inner_x, inner_y = 0.45 * math.cos(fifth / 2), 0.45 * math.sin(fifth / 2)
    normal_x, normal_y = inner_y, 1 - inner_x
    length = math.hypot(normal_x, normal_y)
    along, across = radius * torch.cos(angle), radius * torch.sin(angle)
    return ((along - 1) * normal_x + across * normal_y) / length


def _heart(ax: Tensor, y: Tensor) -> Tensor:
    """Inigo Quilez's exact distance to a heart, scaled to our radius."""
    hx, hy = ax * 0.6, 0.56 - y * 0.6
    upper = torch.sqrt((hx - 0.25) ** 2 + (hy - 0.75) ** 2 + 1e-9) - math.sqrt(2) / 4
    middle = 0.5 * (hx + hy).clamp_min(0)
    nearest = torch.minimum(hx**2 + (hy - 1) ** 2, (hx - middle) ** 2 + (hy - middle) ** 2)
    lower = torch.sqrt(nearest + 1e-9) * torch.sign(hx - hy)
    return torch.where(hx + hy > 1, upper, lower) / 0.6


def distances(x: Tensor, y: Tensor) -> Tensor:
    """Signed distances [B, 8, H, W] to the shapes, in radii; x and y [B, H, W], y down."""
    ax, ay = x.abs(), y.abs()
    radius = torch.sqrt(x * x + y * y + 1e-9)
    slope = math.hypot(1.75, 1.0)
    arm = 0.32
    return torch.stack(
        [
            radius - 0.95,
            torch.maximum(ax, ay) - 0.84,
            torch.maximum(y - 0.78, (ax * 1.75 - (y + 0.97)) / slope),
            _star(torch.atan2(x, -y), radius),
            _heart(ax, y),
            torch.maximum(ay, ax * 0.8660254 + ay * 0.5) - 0.85,
            torch.minimum(torch.maximum(ax - arm, ay - 0.93), torch.maximum(ax - 0.93, ay - arm)),
            (radius - 0.70).abs() - 0.25,
        ],
        1,
    )


def draw(
    shape: Tensor,
    colour: Tensor,
    centre: Tensor,
    radius: Tensor,
    ground: Tensor,
    side_px: int = SIZE_PX,
    style: Style = Style.FILLED,
) -> Tensor:
    """Pictures [B, 3, side, side] in -1 to 1, edges one pixel soft.

    shape [B, K] (-1: none), colour [B, K, 3], centre [B, K, 2], radius [B, K], ground [B, 3].
    """
    points = torch.arange(side_px, device=ground.device, dtype=torch.float32) + 0.5
    grid_x, grid_y = points.view(1, 1, -1), points.view(1, -1, 1)
    picture = ground[:, :, None, None].expand(-1, -1, side_px, side_px)
    for k in range(shape.shape[1]):
        r = radius[:, k, None, None]
        x = ((grid_x - centre[:, k, 0, None, None]) / r).expand(-1, side_px, -1)
        y = ((grid_y - centre[:, k, 1, None, None]) / r).expand(-1, -1, side_px)
        which = shape[:, k].clamp_min(0)[:, None, None, None].expand(-1, 1, side_px, side_px)
        distance = distances(x, y).gather(1, which) * r[:, None]
        if style is Style.OUTLINED:
            distance = (distance + STROKE_PX / 2).abs() - STROKE_PX / 2
        cover = (0.5 - distance).clamp(0, 1) * (shape[:, k] >= 0)[:, None, None, None]
        picture = picture * (1 - cover) + colour[:, k, :, None, None] * cover
    return picture


def draw_packed(packed: Tensor, style: Style = Style.FILLED) -> Tensor:
    """Pictures of packed scenes [B, 11] (see `scenes.pack`)."""
    colours = palette(packed.device)
    things = packed[:, 1:].view(-1, 2, 5)
    return draw(
        things[:, :, 0].long(),
        colours[things[:, :, 1].long()],
        things[:, :, 2:4],
        things[:, :, 4],
        colours[packed[:, 0].long()],
        style=style,
    )


def draw_anything(count: int, device: torch.device, side_px: int, style: Style) -> Tensor:
    """For the autoencoder: up to three shapes anywhere, one colour in five off the palette."""
    colours = palette(device)
    shape = torch.randint(0, 8, (count, 3), device=device)
    present = torch.tensor([0.97, 0.65, 0.33], device=device)
    shape = torch.where(torch.rand(count, 3, device=device) < present, shape, -1)
    chosen = colours[torch.randint(0, 10, (count, 4), device=device)]
    strange = torch.rand(count, 4, 3, device=device) * 2 - 1
    chosen = torch.where(torch.rand(count, 4, 1, device=device) < 0.2, strange, chosen)
    radius = 11 + 20 * torch.rand(count, 3, device=device)
    margin = 14 if side_px == SIZE_PX else 4
    centre = margin + (side_px - 2 * margin) * torch.rand(count, 3, 2, device=device)
    return draw(shape, chosen[:, 1:], centre, radius, chosen[:, 0], side_px, style)
