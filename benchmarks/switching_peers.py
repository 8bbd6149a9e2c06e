"""Other ways to get a model onto the GPU, for the switching benchmark.

`python -m benchmarks.switching_peers NAME FOLDER DEVICE` prints a JSON object: `cold_s` and
`warm_s`, from the first file to all weights on the device, imports and CUDA's start not counted,
once from the disk and once from the page cache; or `missing` with the reason why this peer was not
measured. The pipeline's own loader also draws one picture and prints its digest as `picture`, to
compare with ours bit for bit.

What the streamers give are tensors by name: building the pipeline from them is not counted, which
is kind to them.
"""

import argparse
import gc
import hashlib
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.switching_limits import disk_speed, leave_page_cache, weight_files

PROMPT = "a red circle on a blue background"
SEED = 11


def main() -> int:
    """Loads twice and prints."""
    parser = argparse.ArgumentParser(description="Load a model in another way")
    parser.add_argument("name", choices=sorted(PEERS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("device", choices=["cuda", "cpu"])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--size", type=int, default=1024)
    options = parser.parse_args()
    try:
        result = _measured(options)
    except ImportError as problem:
        result = {"missing": f"{problem.name or problem} is not installed"}
    print(json.dumps(result))
    return 0


def _measured(options: argparse.Namespace) -> dict[str, float | str]:
    torch: Any = importlib.import_module("torch")
    load = PEERS[options.name](options.device)
    torch.zeros(1, device=options.device)
    files = weight_files(options.folder)
    leave_page_cache(files)
    cold_s, loaded = _timed(load, options)
    del loaded
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()
    disk_speed(files)  # a reading leaves them in the page cache
    warm_s, loaded = _timed(load, options)
    result: dict[str, float | str] = {"cold_s": cold_s, "warm_s": warm_s}
    if options.name == "from_pretrained":
        result["picture"] = _picture(loaded, options.steps, options.size)
    return result


def _timed(load: "Load", options: argparse.Namespace) -> tuple[float, Any]:
    started = time.perf_counter()
    loaded = load(options.folder)
    if options.device == "cuda":
        importlib.import_module("torch").cuda.synchronize()
    return time.perf_counter() - started, loaded


def _picture(pipeline: Any, steps: int, size: int) -> str:
    torch: Any = importlib.import_module("torch")
    pipeline.set_progress_bar_config(disable=True)
    image = pipeline(
        PROMPT,
        num_inference_steps=steps,
        guidance_scale=3.0,
        width=size,
        height=size,
        generator=torch.Generator("cpu").manual_seed(SEED),
    ).images[0]
    return digest(image)


def digest(image: Any) -> str:
    """SHA-256 of a picture's pixels."""
    return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()


Load = Callable[[Path], Any]


def _dtype(device: str) -> Any:
    torch: Any = importlib.import_module("torch")
    return torch.bfloat16 if device == "cuda" else torch.float32


def _pipeline_class() -> Any:
    diffusers: Any = importlib.import_module("diffusers")
    transformers: Any = importlib.import_module("transformers")
    # Imported on their first use, which is not the load's time.
    for name in ("CLIPTextModelWithProjection", "T5EncoderModel", "CLIPTokenizer", "T5Tokenizer"):
        getattr(transformers, name)
    for name in ("StableDiffusion3Pipeline", "SD3Transformer2DModel", "AutoencoderKL"):
        getattr(diffusers, name)
    return diffusers.DiffusionPipeline


def _from_pretrained(device: str) -> Load:
    cls, dtype = _pipeline_class(), _dtype(device)
    return lambda folder: cls.from_pretrained(
        str(folder), torch_dtype=dtype, local_files_only=True
    ).to(device)


def _device_map(device: str) -> Load:
    cls, dtype = _pipeline_class(), _dtype(device)
    return lambda folder: cls.from_pretrained(
        str(folder), torch_dtype=dtype, local_files_only=True, device_map=device
    )


def _runai(device: str) -> Load:
    streamer: Any = importlib.import_module("runai_model_streamer")

    def load(folder: Path) -> Any:
        tensors = {}
        with streamer.SafetensorsStreamer() as stream:
            stream.stream_files([str(path) for path in weight_files(folder)])
            for number, (name, tensor) in enumerate(stream.get_tensors()):
                # The buffer is used again; the files' names for their tensors overlap.
                tensors[(number, name)] = tensor.to(device, copy=True)
        return tensors

    return load


def _fastsafetensors(device: str) -> Load:
    library: Any = importlib.import_module("fastsafetensors")

    def load(folder: Path) -> Any:
        buffers = []
        for part in sorted({path.parent for path in weight_files(folder)}):
            files = [str(path) for path in weight_files(folder) if path.parent == part]
            loader = library.SafeTensorsFileLoader(
                None, "cuda:0" if device == "cuda" else "cpu", nogds=True
            )
            loader.add_filenames({0: files})
            buffer = loader.copy_files_to_device()
            buffers.append([buffer.get_tensor(name) for name in loader.get_keys()])
        return buffers

    return load


PEERS: dict[str, Callable[[str], Load]] = {
    "from_pretrained": _from_pretrained,
    "device_map": _device_map,
    "runai-model-streamer": _runai,
    "fastsafetensors": _fastsafetensors,
}


if __name__ == "__main__":
    sys.exit(main())
