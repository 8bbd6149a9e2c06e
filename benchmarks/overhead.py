"""What the server adds to a job of a cached model, and what it costs in throughput.

`python -m benchmarks.overhead [--jobs 50] [--device cpu]` starts a real Jupyter server, has a
participant draw through the Python client (with `--folder`, `--steps`, `--side` and `--dtype`
another model than the shipped one, as on a card), and measures:

- the milliseconds from the client's submit to the worker's start, and from the worker's end to
  the client's return with the image in hand, most of which is making and reading the PNG file of a
  large one (the limit);
- the time of all jobs, kept two deep in the queue, against the same number of calls of the bare
  pipeline in a process of its own (the limit; it makes no PNG files): in the same run, a few at a
  time by turns, so that a machine whose speed drifts is as slow for both. The file of each turn's
  last picture is made beside nothing: of slow models draw more in fewer turns;
- what importing the extension adds to importing jupyter_server.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from PIL import Image

from benchmarks.report import RESULTS, Row, at_most, percentile, publish, shown
from tests.serverprocess import ServerProcess
from workshop_gpu import Client
from workshop_gpu.catalogue.shipped import ASSETS
from workshop_gpu.client.images import GeneratedImage
from workshop_gpu.worker.images import ImageRecord, encode_png
from workshop_gpu.worker.protocol import GenerateParams

SHIPPED = "shapes"
MODEL = "drawn"
PROMPT = "a red circle on a blue background"
ROUNDS = 3
THREADS = str(len(os.sched_getaffinity(0)))
"""Of the worker and of the bare pipeline: all cores, as torch would choose."""

_BARE = """
import sys, time, torch
from diffusers import DiffusionPipeline
folder, device, dtype, prompt = sys.argv[1:5]
jobs, steps, side = map(int, sys.argv[5:])
pipe = DiffusionPipeline.from_pretrained(folder, torch_dtype=getattr(torch, dtype)).to(device)
pipe.set_progress_bar_config(disable=True)
def draw(seed):
    generator = torch.Generator("cpu").manual_seed(seed)
    return pipe(prompt, num_inference_steps=steps, guidance_scale=3.0, width=side, height=side,
                generator=generator).images[0]
draw(0); draw(1)
print("ready", flush=True)
for line in sys.stdin:
    started = time.perf_counter()
    for seed in range(jobs):
        draw(seed)
    print(time.perf_counter() - started, flush=True)
"""


def main() -> int:
    """Measures, prints, writes; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument(
        "--turns", type=int, default=10, help="of the server, and of the bare pipeline, in a round"
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--folder", type=Path, default=ASSETS / SHIPPED, help="of the model")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--side", type=int, default=128, help="pixels")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the table goes")
    options = parser.parse_args()
    if not 0 < options.turns <= options.jobs or options.jobs % options.turns:
        parser.error("--jobs must be a multiple of --turns: as many are drawn in each")
    with tempfile.TemporaryDirectory() as folder, _served(options, Path(folder)) as client:
        client.generate(PROMPT, model=MODEL, progress=False)
        to_start, to_return, file_ms = _latencies(client, options.jobs)
        served, bare = _throughput(client, options)
    ended = "worker's end to client's return"
    rows = [
        at_most("submit to worker's start, p50", percentile(to_start, 50), "ms", 10),
        at_most("submit to worker's start, p99", percentile(to_start, 99), "ms", 30),
        at_most(f"{ended}, p50", percentile(to_return, 50), "ms", 10 + file_ms, limit=file_ms),
        at_most(f"{ended}, p99", percentile(to_return, 99), "ms", 30 + file_ms, limit=file_ms),
        shown(f"{options.jobs} jobs through the server", served, "s", limit=bare),
        at_most("the same against the bare pipeline", served / bare, "ratio", 1.05),
        _import_cost(),
    ]
    notes = (
        f"{options.jobs} jobs of {options.folder.name}, {options.side} x {options.side}, "
        f"{options.steps} steps, {options.dtype} on {options.device}; "
        f"throughput is the median of {ROUNDS} rounds, each in {options.turns} parts, "
        "server and bare pipeline turn about."
    )
    name = "overhead" if options.device == "cpu" else f"overhead-cuda-{options.folder.name}"
    return publish(name, rows, notes, folder=options.results)


@contextmanager
def _served(options: argparse.Namespace, folder: Path) -> Iterator[Client]:
    models = folder / "models.toml"
    size = f"width = {options.side}, height = {options.side}"
    models.write_text(
        f'[[model]]\nid = "{MODEL}"\ndtype = "{options.dtype}"\ncompile = "off"\n'
        f'source = {{ folder = "{options.folder.resolve()}" }}\n'
        f"defaults = {{ steps = {options.steps}, guidance = 3.0, {size} }}\n"
    )
    server = ServerProcess(
        devices=("cpu:4GB" if options.device == "cpu" else "cuda:0",),
        folder=folder,
        env={"OMP_NUM_THREADS": THREADS},
        args=("--WorkshopGPU.queue_limit=4", f"--WorkshopGPU.models_file={models}"),
    )
    with server, Client(server.url, server.token) as client:
        yield client


def _latencies(client: Client, jobs: int) -> tuple[list[float], list[float], float]:
    """Milliseconds to the worker's start, and from its end, for jobs one after the other; and of
    these what a PNG file takes."""
    to_start: list[float] = []
    to_return: list[float] = []
    for seed in range(jobs):
        submitted = time.time()
        job = client.submit(PROMPT, model=MODEL, seed=seed)
        job.wait()
        returned = time.time()
        view = job.refresh()
        assert view.started_at is not None
        assert view.seconds_s is not None
        to_start.append((view.started_at - submitted) * 1000)
        to_return.append((returned - view.started_at - view.seconds_s) * 1000)
    (image,) = job.images()
    return to_start, to_return, _file_ms(image)


def _file_ms(image: Image.Image) -> float:
    """The best of five: the worker makes such a file, and the client reads it."""
    wide, high = image.size
    params = GenerateParams(prompt=PROMPT, seed=0, steps=1, guidance=0.0, width=wide, height=high)
    spent_s = []
    for _ in range(5):
        started = time.perf_counter()
        GeneratedImage(encode_png(image, ImageRecord(model=MODEL, params=params)))
        spent_s.append(time.perf_counter() - started)
    return min(spent_s) * 1000


def _throughput(client: Client, options: argparse.Namespace) -> tuple[float, float]:
    """Seconds for all jobs through the server, and by the bare pipeline: the round whose ratio is
    the median."""
    served: list[float] = []
    bare: list[float] = []
    jobs = options.jobs
    command = [sys.executable, "-c", _BARE, str(options.folder), options.device, options.dtype]
    command += [PROMPT, *map(str, (jobs // options.turns, options.steps, options.side))]
    environment = {**os.environ, "OMP_NUM_THREADS": THREADS}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in range(1, ROUNDS + 1):
            served_s, bare_s = 0.0, 0.0
            for turn in range(options.turns):
                for mine in (turn % 2 == 0, turn % 2 == 1):  # neither is always the first
                    if mine:
                        served_s += _served_s(client, jobs // options.turns)
                    else:
                        process.stdin.write("go\n")
                        process.stdin.flush()
                        bare_s += float(process.stdout.readline())
                said = f"{served_s:.1f} s through the server, {bare_s:.1f} s bare"
                print(f"round {number}, turn {turn + 1}: {said}", file=sys.stderr, flush=True)
            served.append(served_s)
            bare.append(bare_s)
        process.stdin.close()
    middle = sorted(range(ROUNDS), key=lambda number: served[number] / bare[number])[ROUNDS // 2]
    return served[middle], bare[middle]


def _served_s(client: Client, jobs: int) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(partial(_generate, client), range(jobs)))
    return time.perf_counter() - started


def _generate(client: Client, seed: int) -> None:
    client.generate(PROMPT, model=MODEL, seed=seed, progress=False)


def _import_cost() -> Row:
    """Seconds that importing the extension adds to importing jupyter_server, best of five."""
    timed = "import time; import jupyter_server.serverapp; a = time.perf_counter(); "
    timed += "import workshop_gpu.app; print(time.perf_counter() - a)"
    costs = [
        float(subprocess.run([sys.executable, "-c", timed], capture_output=True, check=True).stdout)
        for _ in range(5)
    ]
    return at_most("import of the extension", min(costs), "s", 0.3)


if __name__ == "__main__":
    sys.exit(main())
