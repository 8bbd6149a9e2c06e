"""`workshop-gpu`: pictures, a look at the machine, and the models, without a Jupyter server.

Answers go to stdout, progress and errors to stderr. Exit status: 0 done, 1 refused or failed (one
line says why), 2 wrong usage, 130 cancelled.
"""

import argparse
import sys
from pathlib import Path

from workshop_gpu import __version__
from workshop_gpu.catalogue.catalogue import default_models_file
from workshop_gpu.conductor.errors import WorkshopError

FAILED = 1
CANCELLED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "generate":
                from workshop_gpu.cli.generate import generate

                return generate(options)
            case "models":
                from workshop_gpu.cli.models import models

                return models(options)
            case "tune":
                from workshop_gpu.cli.tune import tune

                return tune(options)
            case _:
                from workshop_gpu.cli.doctor import doctor

                return doctor(options)
    except WorkshopError as error:
        print(f"workshop-gpu: {error.message}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("workshop-gpu: cancelled", file=sys.stderr)
        return CANCELLED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="workshop-gpu", description="One GPU for a whole room of notebooks."
    )
    parser.add_argument("--version", action="version", version=f"workshop-gpu {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--models-file",
        type=Path,
        default=None,
        metavar="PATH",
        help=f"the models.toml (default: {default_models_file()})",
    )
    _add_generate(commands, common)
    doctor = commands.add_parser(
        "doctor", parents=[common], help="what this machine has, and what will work"
    )
    doctor.add_argument(
        "--no-torch-check",
        action="store_true",
        help="do not start torch in a process of its own (saves some seconds)",
    )
    models = commands.add_parser("models", parents=[common], help="the models on offer")
    models.add_argument(
        "--init", action="store_true", help="write a models.toml with examples to start from"
    )
    _add_tune(commands, common)
    return parser


def _add_tune(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    common: argparse.ArgumentParser,
) -> None:
    tune = commands.add_parser(
        "tune", parents=[common], help="measure a model's placements on this machine"
    )
    tune.add_argument("model", help="a model's id")
    tune.add_argument("--sizes", type=_size, nargs="+", default=[], metavar="WxH")
    tune.add_argument("--rungs", nargs="+", default=[], metavar="RUNG", help="default: all")
    tune.add_argument("--steps", type=int, default=4, help="denoising steps of each picture")
    tune.add_argument("--device", default="auto", help="as for generate; the first is measured")
    tune.add_argument(
        "--data-folder",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="the server's (default: in Jupyter's data folder)",
    )
    tune.add_argument("--plot", type=Path, default=None, metavar="SVG", help="write a picture")


def _add_generate(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    common: argparse.ArgumentParser,
) -> None:
    generate = commands.add_parser("generate", parents=[common], help="make a picture")
    generate.add_argument("prompt", help='what to draw, such as "a red circle"')
    generate.add_argument("--model", default="", help="a model's id (default: the first on offer)")
    generate.add_argument(
        "-o", "--output", type=Path, default=None, metavar="PNG", help="default: MODEL-SEED.png"
    )
    generate.add_argument("--negative", default="", metavar="TEXT", help="what to avoid")
    generate.add_argument("--seed", type=int, default=None, help="default: drawn at random")
    generate.add_argument("--steps", type=int, default=None, help="denoising steps")
    generate.add_argument("--guidance", type=float, default=None, help="how closely to follow it")
    generate.add_argument(
        "--lora", type=_lora, action="append", default=[], metavar="NAME[:SCALE]",
        help="a LoRA to put on (see `workshop-gpu models`); may be repeated",
    )  # fmt: skip
    generate.add_argument("--size", type=_size, default=(None, None), metavar="WxH")
    generate.add_argument("--images", type=int, default=1, metavar="N", help="how many")
    generate.add_argument(
        "--placement", default="", metavar="RUNG", help="where the model's parts have to lie"
    )
    generate.add_argument(
        "--profile", action="store_true", help="print how each step's time was spent (on stderr)"
    )
    generate.add_argument(
        "--device", default="auto", help='"auto", "cuda:0", "cpu" or "cpu:2GB" (default: auto)'
    )
    generate.add_argument("--threads", type=int, default=0, help="CPU threads (0: torch's choice)")


def _lora(text: str) -> tuple[str, float | None]:
    name, colon, scale = text.partition(":")
    try:
        return name, float(scale) if colon else None
    except ValueError:
        raise argparse.ArgumentTypeError(f'"{text}" is no LoRA; write it like ink:0.8') from None


def _size(text: str) -> tuple[int, int]:
    width, x, height = text.lower().replace("×", "x").partition("x")
    if not (x and width.isdecimal() and height.isdecimal()):
        raise argparse.ArgumentTypeError(f'"{text}" is no size; write it like 128x128')
    return int(width), int(height)
