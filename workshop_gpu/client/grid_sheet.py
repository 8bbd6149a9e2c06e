"""A grid as one picture: a contact sheet with labels, to print or to send."""

import math
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from workshop_gpu.client.grid_plan import Cell, Plan, label, row_label

_GAP_PX = 8
_TEXT_PX = 14
_LINES = 3
_MOST_IN_A_LINE = 6
_SIDE_PX = 160
_INK, _PAPER, _EMPTY = "#222222", "white", "#eeeeee"


def sheet_of(plan: Plan, cell_px: int) -> Image.Image:
    """The contact sheet; each picture's longer side is `cell_px` pixels."""
    lines = plan.lines()
    columns = plan.columns
    if not plan.rows:  # one thing varies: a block of pictures, each with its label
        width = min(_MOST_IN_A_LINE, math.ceil(math.sqrt(len(plan.cells))))
        lines = [plan.cells[at : at + width] for at in range(0, len(plan.cells), width)]
    size = _cell_size(plan.cells, cell_px)
    head_px = _TEXT_PX * _LINES + _GAP_PX
    side_px = _SIDE_PX if plan.rows else 0
    repeated = not plan.rows and columns is not None
    step = (size[0] + _GAP_PX, size[1] + _GAP_PX + (head_px if repeated else 0))
    top_px = _GAP_PX + (head_px if plan.rows else 0)
    sheet = Image.new(
        "RGB",
        (side_px + _GAP_PX + step[0] * max(map(len, lines)), top_px + step[1] * len(lines)),
        _PAPER,
    )
    draw = ImageDraw.Draw(sheet)
    for row, line in enumerate(lines):
        y = top_px + row * step[1]
        if plan.rows:
            _write(draw, (_GAP_PX, y), row_label(plan.rows, line[0]), side_px - 2 * _GAP_PX, 6)
        for column, cell in enumerate(line):
            x = side_px + _GAP_PX + column * step[0]
            _paste(sheet, draw, cell, (x, y), size)
            if columns is None:
                continue
            words = label(columns.name, cell.values[columns.name])
            if repeated:
                _write(draw, (x, y + size[1] + 2), words, size[0], _LINES)
            elif row == 0:
                _write(draw, (x, _GAP_PX), words, size[0], _LINES)
    return sheet


def _cell_size(cells: Sequence[Cell], cell_px: int) -> tuple[int, int]:
    made = next((cell.image for cell in cells if cell.image is not None), None)
    if made is None:
        return cell_px, cell_px
    scale = cell_px / max(made.size)
    return max(1, round(made.width * scale)), max(1, round(made.height * scale))


def _paste(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    cell: Cell,
    place: tuple[int, int],
    size: tuple[int, int],
) -> None:
    if cell.image is not None:
        sheet.paste(cell.image.convert("RGB").resize(size, Image.Resampling.LANCZOS), place)
        return
    x, y = place
    draw.rectangle((x, y, x + size[0] - 1, y + size[1] - 1), fill=_EMPTY)
    _write(draw, (x + _GAP_PX, y + _GAP_PX), cell.words, size[0] - 2 * _GAP_PX, 5)


def _write(
    draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, width_px: int, lines: int
) -> None:
    """Text broken into so many lines at most, none of them wider than there is room."""
    font = ImageFont.load_default(_TEXT_PX)

    def fits(words: str) -> bool:
        return draw.textlength(words, font=font) <= width_px

    broken = [""]
    for word in text.split():
        longer = f"{broken[-1]} {word}".strip()
        if fits(longer) or not broken[-1]:
            broken[-1] = longer
        else:
            broken.append(word)
    if len(broken) > lines:
        broken = [*broken[: lines - 1], f"{broken[lines - 1]} …"]
    for number, line in enumerate(broken):
        while line and not fits(line):
            line = line[:-2] + "…"  # noqa: PLW2901
        draw.text((place[0], place[1] + number * _TEXT_PX), line, fill=_INK, font=font)
