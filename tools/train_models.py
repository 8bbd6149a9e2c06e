"""Makes the models that the package ships, from nothing: no data files, no downloads.

    python tools/train_models.py --assets workshop_gpu/catalogue/assets

takes under half an hour on one GPU. Each stage leaves its result in the folder of stages; a
stage whose result is there is not run again, and one that was stopped goes on where it was.
With `--smoke` everything is tiny and takes seconds on a CPU (and draws nothing useful).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from shape_models.context import Context
from shape_models.data_stage import make_data
from shape_models.dit_stage import train_dit
from shape_models.lora_stage import train_dit_lora, train_unet_lora
from shape_models.plan import RELEASE, SMOKE
from shape_models.training import Clock, StoppedEarly
from shape_models.turbo_stage import make_turbo
from shape_models.unet_stage import train_unet
from shape_models.vae_stage import train_vae

STAGES: dict[str, Callable[[Context], None]] = {
    "vae": train_vae,
    "data": make_data,
    "unet": train_unet,
    "dit": train_dit,
    "turbo": make_turbo,
    "lora-unet": train_unet_lora,
    "lora-dit": train_dit_lora,
}
"""In order; each leaves a file of its own name in the folder of stages."""

STOPPED_EARLY = 3
"""The exit code that says: call again to go on."""


def run_stages(context: Context, names: list[str]) -> None:
    """Runs the stages whose results are missing and adds up the seconds each has taken."""
    context.folder.mkdir(parents=True, exist_ok=True)
    times_file = context.folder / "seconds.json"
    for name in names:
        if context.has(name):
            context.say(f"{name}: already there")
            continue
        context.say(f"{name}: begins")
        start = time.monotonic()
        try:
            STAGES[name](context)
        finally:
            times = json.loads(times_file.read_text()) if times_file.exists() else {}
            times[name] = round(times.get(name, 0.0) + time.monotonic() - start, 1)
            times_file.write_text(json.dumps(times, indent=1) + "\n")
            context.say(f"{name}: {times[name]} s so far")


def main(arguments: list[str] | None = None) -> int:
    """The command; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--folder", type=Path, default=Path(".stage/models"), help="of stages")
    parser.add_argument("--assets", type=Path, help="write the folders to load here at the end")
    parser.add_argument("--smoke", action="store_true", help="tiny, for a test of the code")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--stop-after", type=float, metavar="S", help="seconds; then call again")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args(arguments)
    plan = SMOKE if asked.smoke else RELEASE
    device = torch.device(asked.device)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.enable_cudnn_sdp(False)
    context = Context(plan, asked.folder, device, Clock(asked.stop_after))
    try:
        run_stages(context, asked.stages)
    except StoppedEarly as stopped:
        print(stopped)
        return STOPPED_EARLY
    if asked.assets is not None:
        # Imported late: it needs the pipelines, which take seconds to import.
        from shape_models.assemble import assemble

        assemble(context, asked.assets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
