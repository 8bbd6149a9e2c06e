"""How fast models come and go, against what the machine allows and what other tools take.

`python -m benchmarks.switching [--folder DIR] [--device cuda:0]` measures, side by side in one run:

- the machine's limits: the disk, the bus, CUDA's registering of memory;
- other ways to load (`from_pretrained`, `device_map`, runai-model-streamer, fastsafetensors), each
  in a process of its own, from the disk and from the page cache;
- ours, through the whole product but for the Jupyter server: from the disk, from the page cache,
  from the pool, with and without shared components, while another model draws, after the worker
  was killed, on a second GPU where there is one;
- whether the pictures stay the same bit for bit through all of it.

The models have the exact shape of SD3.5-Large (27.6 GB) with random weights; `--folder` keeps them
for the next run (57 GB). `--small` takes the shipped models and the CPU instead: it shows that the
benchmark works, and nothing else.

With `--folder`, what each part has found is kept there: called again, a run that was broken off
goes on with the next part. `--anew` forgets it.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.report import ROOT, publish, shown
from benchmarks.switching_models import MODELS, NEEDED_BYTES
from benchmarks.switching_peers import PEERS
from benchmarks.switching_rooms import PARTS, same_pictures
from benchmarks.switching_run import FEW_STEPS, Run
from workshop_gpu.catalogue.shipped import ASSETS

_CHILD_S = 300.0


def main() -> int:
    """Measures, prints, writes; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, help="where the models are kept")
    parser.add_argument("--device", action="append", help="cuda:0 (default); again for a second")
    parser.add_argument("--small", action="store_true", help="shipped models, on the CPU")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="default: all", default=[*PEERS])
    parser.add_argument("--parts", nargs="*", choices=PARTS, help="likewise", default=[*PARTS])
    parser.add_argument("--out", type=Path, help="folder of the result, default benchmarks/results")
    parser.add_argument("--anew", action="store_true", help="forget what was found before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="workshop-gpu-") as work:
        run = _prepare(options, Path(work))
        run.attempt("limits", partial(_limits, run))
        for peer in run.peers:
            run.attempt(peer, partial(_peer, run, peer))
        for part in options.parts:
            run.attempt(part, partial(_in_a_room, part, run))
    rows = [*run.found.rows, same_pictures(run), run.found.breaks()]
    name = "switching-small" if options.small else "switching"
    where = {"folder": options.out} if options.out else {}
    return publish(name, rows, "\n".join(run.found.notes), **where)


def _in_a_room(part: str, run: Run) -> None:
    asyncio.run(PARTS[part](run))


def _prepare(options: argparse.Namespace, work: Path) -> Run:
    if options.small:
        names = dict(zip(MODELS, ("shapes-dit", "shapes-dit-turbo", "shapes"), strict=True))
        folders = {name: ASSETS / shipped for name, shipped in names.items()}
        kept = work / "found.json"
        return Run(folders, options.device or ["cpu:2GB"], options.peers, True, work, kept)
    folder = options.folder or work / "models"
    if not (folder / MODELS[-1]).is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < NEEDED_BYTES:
            sys.exit(f"{folder} has less than the {NEEDED_BYTES / 1e9:.0f} GB that the models take")
        print("writing the models took", _child("switching_models", str(folder)), "s", flush=True)
    folders = {name: folder / name for name in MODELS}
    kept = folder / "found.json"
    if options.anew:
        kept.unlink(missing_ok=True)
    return Run(folders, options.device or ["cuda:0"], options.peers, False, work, kept)


def _child(module: str, *arguments: str) -> str:
    """The last line that a module of ours prints in a process of its own."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=_CHILD_S
    )
    return done.stdout.strip().splitlines()[-1]


def _limits(run: Run) -> None:
    limits = json.loads(_child("switching_limits", str(run.folders["large"]), run.kind))
    found = run.found
    found.disk, found.bus = limits["disk"], limits["bus"]
    found.rows.append(shown("the disk", found.disk / 1e9, "GB/s"))
    if found.bus:
        found.rows.append(shown("pinned memory to the GPU", found.bus / 1e9, "GB/s"))
        register = limits["register"] / 1e9
        found.rows.append(shown("CUDA's registering of filled memory", register, "GB/s"))


def _peer(run: Run, peer: str) -> None:
    where = str(run.folders["large"])
    size, steps = f"--size={run.params(1).width}", f"--steps={FEW_STEPS}"
    result = json.loads(_child("switching_peers", peer, where, run.kind, size, steps))
    if "missing" in result:
        run.found.notes.append(f"{peer} was not measured: {result['missing']}.")
        return
    run.add(f"{peer}, from the disk", result["cold_s"])
    run.add(f"{peer}, from the page cache", result["warm_s"])
    if "picture" in result:
        run.saw(FEW_STEPS, result["picture"])


if __name__ == "__main__":
    sys.exit(main())
