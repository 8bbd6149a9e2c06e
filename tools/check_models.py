"""Judges the shipped models on prompts that their training never saw.

    python tools/check_models.py workshop_gpu/catalogue/assets --table table.md --sheet sheet.png

Each model is loaded as a user loads it, by plain `from_pretrained`, and draws 100 prompts with
one shape and 100 with two, each with a seed of its own. Nothing here draws as the trainer does:
shapes and colours are read off the pixels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DiffusionPipeline
from PIL import Image
from shape_judge.pixels import look
from shape_judge.tasks import Task, make_tasks
from shape_judge.verdict import Verdict, describe, judge


@dataclass(frozen=True)
class Model:
    """How a model is meant to be called, and the shares of right pictures asked of it."""

    name: str
    steps: int
    guidance: float
    bar_one: float
    bar_two: float


MODELS = (
    Model("shapes", 20, 3.0, 0.98, 0.95),
    Model("shapes-dit", 20, 3.0, 0.97, 0.93),
    Model("shapes-dit-turbo", 4, 0.0, 0.93, 0.88),
)


@dataclass(frozen=True)
class Result:
    """One model's verdicts and how long one image took alone, in seconds."""

    model: Model
    one: list[Verdict]
    two: list[Verdict]
    pictures: list[Image.Image]
    alone_s: float

    def passes(self) -> bool:
        one, two = (share([v.right for v in part]) for part in (self.one, self.two))
        return one >= self.model.bar_one and two >= self.model.bar_two


def share(values: list[bool]) -> float:
    """Part of the values that are true."""
    return sum(values) / max(1, len(values))


def draw(
    pipe: Any, model: Model, prompts: list[str], first_seed: int, batch: int
) -> list[Image.Image]:
    """Pictures of the prompts; the k-th has the seed `first_seed` + k, whatever the batch."""
    pictures: list[Image.Image] = []
    for start in range(0, len(prompts), batch):
        part = prompts[start : start + batch]
        seeds = [first_seed + start + k for k in range(len(part))]
        pictures += pipe(
            part,
            num_inference_steps=model.steps,
            guidance_scale=model.guidance,
            generator=[torch.Generator().manual_seed(seed) for seed in seeds],
        ).images
    return pictures


def check(assets: Path, model: Model, count: int, device: str, batch: int) -> Result:
    """Draws and judges `count` prompts of each kind."""
    pipe = DiffusionPipeline.from_pretrained(assets / model.name).to(device)
    pipe.set_progress_bar_config(disable=True)
    verdicts: list[list[Verdict]] = []
    pictures: list[Image.Image] = []
    for things in (1, 2):
        tasks = make_tasks(count, things)
        drawn = draw(pipe, model, [task.prompt for task in tasks], 1000 * things, batch)
        found = [judge(np.asarray(p), task) for p, task in zip(drawn, tasks, strict=True)]
        verdicts.append(found)
        pictures += drawn
        _say_failures(model, tasks, drawn, found)
    alone = []
    for seed in range(4):
        start = time.perf_counter()
        draw(pipe, model, ["a red star on a blue background"], seed, 1)
        alone.append(time.perf_counter() - start)
    return Result(model, verdicts[0], verdicts[1], pictures, statistics.median(alone[1:]))


def _say_failures(
    model: Model, tasks: list[Task], pictures: list[Image.Image], verdicts: list[Verdict]
) -> None:
    for task, picture, verdict in zip(tasks, pictures, verdicts, strict=True):
        if not verdict.right:
            print(f"{model.name}: {task.prompt!r}: {describe(look(np.asarray(picture)))}")


def table(results: list[Result]) -> str:
    """The results as a Markdown table, in per cent."""
    lines = [
        "| model | steps | one shape (bar) | two shapes (bar) | with size and place "
        "| clean | seconds an image |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        model, every = result.model, [*result.one, *result.two]
        one, two = (share([v.right for v in part]) for part in (result.one, result.two))
        all_right, clean = share([v.right_in_all for v in every]), share([v.clean for v in every])
        lines.append(
            f"| `{model.name}` | {model.steps} | {one:.0%} ({model.bar_one:.0%}) "
            f"| {two:.0%} ({model.bar_two:.0%}) | {all_right:.1%} | {clean:.1%} "
            f"| {result.alone_s:.2f} |"
        )
    return "\n".join(lines) + "\n"


def sheet(results: list[Result], columns: int = 12) -> Image.Image:
    """A contact sheet: of each model one row of single shapes and one of pairs, in task order."""
    rows = 2 * len(results)
    whole = Image.new("RGB", (columns * 132 + 4, rows * 132 + 4), (110, 110, 110))
    for k, result in enumerate(results):
        half = len(result.one)
        for row, start in ((2 * k, 0), (2 * k + 1, half)):
            for column, picture in enumerate(result.pictures[start : start + half][:columns]):
                whole.paste(picture, (4 + 132 * column, 4 + 132 * row))
    return whole


def numbers(result: Result) -> dict[str, Any]:
    """All shares, for a file."""
    parts: dict[str, Any] = {"model": result.model.name, "alone_s": round(result.alone_s, 3)}
    for name, verdicts in (("one", result.one), ("two", result.two)):
        kinds = ("right", "right_in_all", "ground", "count", "colour", "shape", "relation", "clean")
        parts[name] = {kind: share([getattr(v, kind) for v in verdicts]) for kind in kinds}
        parts[name]["size"] = share([v.size for v in verdicts])
        parts[name]["place"] = share([v.place for v in verdicts])
    return parts


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 if a model misses its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("assets", type=Path)
    parser.add_argument("--models", nargs="+", default=[model.name for model in MODELS])
    parser.add_argument("--count", type=int, default=100, help="prompts of each kind")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--numbers", type=Path)
    parser.add_argument("--sheet", type=Path)
    asked = parser.parse_args(arguments)
    models = [model for model in MODELS if model.name in asked.models]
    results = [check(asked.assets, m, asked.count, asked.device, asked.batch) for m in models]
    print(table(results))
    if asked.table:
        asked.table.write_text(table(results))
    if asked.numbers:
        asked.numbers.write_text(json.dumps([numbers(r) for r in results], indent=1) + "\n")
    if asked.sheet:
        sheet(results).save(asked.sheet, optimize=True)
    return 0 if all(result.passes() for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
