"""`workshop-gpu models`: what is on offer and what of it is on this disk."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from workshop_gpu.catalogue.catalogue import Catalogue, default_models_file
from workshop_gpu.catalogue.files import LocalState
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.catalogue.spec import ModelSpec
from workshop_gpu.catalogue.template import TEMPLATE
from workshop_gpu.conductor.errors import gigabytes

_STATES = {
    LocalState.READY: "on this disk",
    LocalState.TO_DOWNLOAD: "to be downloaded",
    LocalState.UNUSABLE: "unusable",
}


def models(options: argparse.Namespace) -> int:
    """Print the table; returns 1 where the file has mistakes, else 0."""
    path = options.models_file or default_models_file()
    if options.init:
        return _init(path)
    catalogue = Catalogue(path)
    catalogue.load()
    print(_title(path))
    for line in [*table(catalogue), *lora_table(catalogue)]:
        print(line)
    for problem in catalogue.problems:
        print(f"workshop-gpu: {problem}", file=sys.stderr)
    return 1 if catalogue.problems else 0


def table(catalogue: Catalogue) -> list[str]:
    """The models as lines of text, the problems of each below it."""
    rows = [("MODEL", "STATE", "WEIGHTS", "DEFAULTS", "FROM")]
    notes: list[str] = [""]
    for spec in catalogue.specs:
        local = catalogue.local(spec.id)
        state = _STATES[local.state] if spec.enabled else "switched off"
        size = gigabytes(local.file_bytes) if local.file_bytes else "?"
        rows.append((spec.id, state, size, _defaults(spec), _source(spec)))
        notes.append(local.problem or (spec.reason if not spec.enabled else ""))
    return _lines(rows, notes)


def lora_table(catalogue: Catalogue) -> list[str]:
    """The LoRAs in the same way, below a free line; nothing where there are none."""
    rows = [("LORA", "STATE", "WEIGHTS", "SCALE", "FOR")]
    notes: list[str] = [""]
    for lora in catalogue.loras:
        size = gigabytes(lora.file_bytes) if lora.file_bytes else "?"
        state = "unusable" if lora.problem else "on this disk"
        models = ", ".join(lora.spec.models)
        rows.append((lora.id, state, size, f"{lora.spec.scale:g}", models))
        notes.append(lora.problem)
    return ["", *_lines(rows, notes)] if len(rows) > 1 else []


def _lines(rows: Sequence[Sequence[str]], notes: Sequence[str]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines: list[str] = []
    for row, note in zip(rows, notes, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
        lines += [f"    {note}"] if note else []
    return lines


def _title(path: Path) -> str:
    if path.exists():
        return f"From {path}:\n"
    return (
        f"There is no {path}, so the shipped models and those in the Hugging Face cache are "
        "offered.\n`workshop-gpu models --init` writes one to start from.\n"
    )


def _defaults(spec: ModelSpec) -> str:
    defaults = spec.defaults
    return f"{defaults.steps} steps, {defaults.width}x{defaults.height}"


def _source(spec: ModelSpec) -> str:
    if spec.source.folder.startswith(str(ASSETS)):
        return "shipped with workshop-gpu"
    return spec.source.hub or spec.source.folder or spec.source.file


def _init(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except FileExistsError:
        print(f"workshop-gpu: {path} exists already; it stays as it is", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"workshop-gpu: {path} was not written: {error.strerror}", file=sys.stderr)
        return 1
    print(path)
    return 0
