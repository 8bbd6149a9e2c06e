"""`python -m workshop_gpu.worker --device cuda --fd 7`: one worker for one GPU.

The host sets CUDA_VISIBLE_DEVICES, so a worker's card is always cuda:0. `--fd` is the number of
an inherited, connected Unix stream socket.
"""

import argparse
import gc
import os
import signal
import socket
import sys
import warnings

from workshop_gpu.worker.lifeline import die_with_parent
from workshop_gpu.worker.link import Link, end_process

EXIT_NO_DEVICE = 4

_ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""torch 2.9 renamed the second to the first; each version takes the one that it knows."""


def main() -> None:
    """Read the orders from the first moment on, import the libraries, then work for ever."""
    options = _options()
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is meant for the server
    _prepare_environment(options.threads)
    link = Link(socket.socket(fileno=options.fd))
    link.start()  # before the imports: a server that dies meanwhile must not leave us behind

    from workshop_gpu.worker.devices import DeviceUnusable, open_device
    from workshop_gpu.worker.engine import Engine
    from workshop_gpu.worker.moving import Mover
    from workshop_gpu.worker.pipelines import import_usual_classes
    from workshop_gpu.worker.pool_link import PoolLink
    from workshop_gpu.worker.turns import Turns

    try:
        device = open_device(options.device, options.total_bytes, options.threads)
    except DeviceUnusable as problem:
        end_process(EXIT_NO_DEVICE, str(problem))
    import_usual_classes()
    gc.collect()
    gc.freeze()  # the libraries' objects stay for ever: later collections need not visit them
    turns = Turns()
    mover = Mover(device, link, turns, PoolLink(link))
    mover.start()
    Engine(device, link, mover, turns).work_for_ever()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workshop_gpu.worker")
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--total-bytes", type=int, default=0, help="pretended VRAM of the cpu")
    parser.add_argument("--fd", type=int, required=True, help="the socket to the host")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (0: torch decides)")
    options = parser.parse_args()
    if options.device == "cpu" and options.total_bytes <= 0:
        parser.error("--device cpu needs --total-bytes, the VRAM that it pretends to have")
    return options


def _prepare_environment(threads: int) -> None:
    """What torch, transformers and tqdm read once, when they are imported."""
    if threads > 0:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["HF_HUB_OFFLINE"] = "1"  # the worker never downloads
    os.environ["TQDM_DISABLE"] = "1"
    os.environ["DIFFUSERS_VERBOSITY"] = "error"
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if not any(name in os.environ for name in _ALLOCATOR_SETTINGS):
        os.environ.update(dict.fromkeys(_ALLOCATOR_SETTINGS, "expandable_segments:True"))
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # the libraries' advice to programmers helps nobody here


if __name__ == "__main__":
    main()
