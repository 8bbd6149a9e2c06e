"""Other ways to run a model that is larger than the card, for the benchmark of placements.

`python -m benchmarks.placements_peers NAME FOLDER DEVICE` draws two pictures and prints a JSON
object for the second: `step_s`, `job_s`, `peak_bytes`; or `missing` with the reason why this peer
was not measured. Each has a process of its own: some of them change their libraries for good.

mmgp (3.8) and diffusers-mm (0.4) are on PyPI; they need optimum-quanto and psutil.
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

PROMPT = "a red circle on a blue background"
SEED = 11


def main() -> int:
    """Draws twice and prints."""
    parser = argparse.ArgumentParser(description="Draw with a model placed in another way")
    parser.add_argument("name", choices=sorted(PEERS))
    parser.add_argument("folder")
    parser.add_argument("device", choices=["cuda", "cpu"])
    parser.add_argument("--steps", type=int, default=28)
    parser.add_argument("--side", type=int, default=1024)
    options = parser.parse_args()
    try:
        found = _measured(options)
    except ImportError as problem:
        found = {"missing": f"{problem.name or problem} is not installed"}
    except Exception as problem:  # each has failures of its own; the others go on
        found = {"missing": f"{type(problem).__name__}: {problem}"}
    print(json.dumps(found))
    return 0


def _measured(options: argparse.Namespace) -> dict[str, float | str]:
    place = PEERS[options.name]
    if options.name.startswith("mmgp"):
        _import_mmgp()
    torch: Any = importlib.import_module("torch")
    diffusers: Any = importlib.import_module("diffusers")
    on_card = options.device == "cuda"
    dtype = torch.bfloat16 if on_card else torch.float32
    pipeline = diffusers.DiffusionPipeline.from_pretrained(
        options.folder, torch_dtype=dtype, local_files_only=True
    )
    pipeline.set_progress_bar_config(disable=True)
    pipeline = place(pipeline, options.device) or pipeline
    ends: list[float] = []

    def now() -> float:
        if on_card:
            torch.cuda.synchronize()
        return time.perf_counter()

    def after_step(_: Any, index: int, time_step: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if index in (0, options.steps - 1):
            ends.append(now())
        return {}

    for _ in range(2):
        ends.clear()
        if on_card:
            torch.cuda.reset_peak_memory_stats()
        started = now()
        pipeline(
            PROMPT, num_inference_steps=options.steps, guidance_scale=3.0,
            width=options.side, height=options.side,
            generator=torch.Generator("cpu").manual_seed(SEED), callback_on_step_end=after_step,
        )  # fmt: skip
        job_s = now() - started
    return {
        "step_s": (ends[-1] - ends[0]) / (options.steps - 1),
        "job_s": job_s,
        "peak_bytes": torch.cuda.max_memory_allocated() if on_card else 0,
    }


Place = Callable[[Any, str], Any]
"""Places the pipeline on the device; what it returns, if anything, is used in its place."""


def _resident(pipeline: Any, device: str) -> None:
    pipeline.to(device)


def _model_offload(pipeline: Any, device: str) -> None:
    pipeline.enable_model_cpu_offload(device=device)


def _grouped(level: str) -> Place:
    def place(pipeline: Any, device: str) -> None:
        torch: Any = importlib.import_module("torch")
        hooks: Any = importlib.import_module("diffusers.hooks")
        # At block level some text encoders compute beside their blocks: leaves for them always.
        for name, module in pipeline.components.items():
            if not isinstance(module, torch.nn.Module):
                continue
            if name == "vae":
                module.to(device)
                continue
            own_level = level if name == "transformer" else "leaf_level"
            options: dict[str, Any] = {"offload_type": own_level, "use_stream": device == "cuda"}
            if own_level == "block_level":
                options["num_blocks_per_group"] = 1
            hooks.apply_group_offloading(
                module,
                onload_device=torch.device(device),
                offload_device=torch.device("cpu"),
                **options,
            )

    return place


def _import_mmgp() -> None:
    """It wants to be there before the weights are, and reads them in a way of its own, which knows
    nothing of the last argument that transformers gives."""
    importlib.import_module("mmgp.offload")
    read: Any = importlib.import_module("mmgp.safetensors2").safe_open

    def read_anyway(*args: Any, backend: str = "", **kwargs: Any) -> Any:
        return read(*args, **kwargs)

    for name in ("safetensors", "accelerate.utils.modeling", "transformers.modeling_utils"):
        module: Any = importlib.import_module(name)
        module.safe_open = read_anyway


def _mmgp(profile: int) -> Place:
    """Its profiles for much host memory, without the quantization that is their default."""

    def place(pipeline: Any, device: str) -> None:
        offload: Any = importlib.import_module("mmgp.offload")
        offload.profile(pipeline, profile, quantizeTransformer=False, verboseLevel=0)

    return place


def _diffusers_mm(strategy: str) -> Place:
    def place(pipeline: Any, device: str) -> Any:
        library: Any = importlib.import_module("diffusers_mm")
        return library.managed(pipeline, strategy=strategy, device=device)

    return place


PEERS: dict[str, Place] = {
    "diffusers, resident": _resident,
    "diffusers, enable_model_cpu_offload": _model_offload,
    "diffusers, group offload by block, stream": _grouped("block_level"),
    "diffusers, group offload by leaf, stream": _grouped("leaf_level"),
    "mmgp, profile 1": _mmgp(1),
    "mmgp, profile 2": _mmgp(2),
    "mmgp, profile 4": _mmgp(4),
    "diffusers-mm, block_pin": _diffusers_mm("block_pin"),
    "diffusers-mm, group_offload": _diffusers_mm("group_offload"),
    "diffusers-mm, model_offload": _diffusers_mm("model_offload"),
}


if __name__ == "__main__":
    sys.exit(main())
