"""`python -m workshop_gpu.worker --device cuda --fd 7`: one worker for one GPU.

The host sets CUDA_VISIBLE_DEVICES, so a worker's card is always cuda:0; after it come only cards
that a model names as its swap device, and nothing touches these for other models. `--fd` is the
number of an inherited, connected Unix stream socket. With `--stand-by` instead of `--device`, the
host names the device once it needs the worker, and says when that one is free.
"""

import argparse
import faulthandler
import gc
import os
import resource
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from workshop_gpu.worker import heartbeat
from workshop_gpu.worker.compilers import AUTO, COMPILERS, compilers_folders
from workshop_gpu.worker.lifeline import die_with_parent
from workshop_gpu.worker.link import Link, end_process
from workshop_gpu.worker.protocol_loras import LorasKept
from workshop_gpu.worker.protocol_spare import StandingBy
from workshop_gpu.worker.turns import Turns

if TYPE_CHECKING:
    from workshop_gpu.worker.compiling import Compiling
    from workshop_gpu.worker.devices import Device

EXIT_NO_DEVICE = 4
EXIT_THREAD_BROKE = 6

_ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""torch 2.9 renamed the second to the first; each version takes the one that it knows."""


def main() -> None:
    """Read the orders from the first moment on, import the libraries, then work for ever."""
    options = _options()
    gc.disable()  # until the libraries are imported: a fifth of the time went into it
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is meant for the server
    _say_where_it_ends()
    _allow_many_files()
    _prepare_environment(options.threads)
    os.environ.update(compilers_folders(options.compiled))
    link = Link(socket.socket(fileno=options.fd))
    link.start()  # before the imports: a server that dies meanwhile must not leave us behind
    if options.stand_by:
        _leave_cards_alone()

    from workshop_gpu.worker.ahead import Ahead
    from workshop_gpu.worker.cores import share_out
    from workshop_gpu.worker.devices import open_device
    from workshop_gpu.worker.engine import Engine
    from workshop_gpu.worker.loras import Loras
    from workshop_gpu.worker.moving import Mover
    from workshop_gpu.worker.neighbours import Neighbours
    from workshop_gpu.worker.pipelines import import_usual_classes
    from workshop_gpu.worker.pool_link import PoolLink

    turns = Turns()
    ahead = Ahead(turns, link.preparations)
    if options.stand_by:
        import_usual_classes()
        _freeze()
        ahead.start()
        device = _take_over(link, options)
    else:
        device = _open(partial(open_device, options.device, options.total_bytes))
        import_usual_classes()
        _freeze()
    share_out(options.threads)
    if not options.stand_by:
        ahead.start()
    compiling = _compiling(link, turns, device, options)
    neighbours = Neighbours(options.neighbours, on_card=options.device == "cuda")
    loras = Loras(tell=lambda kept: link.send(LorasKept(kept)))
    link.forget_loras = loras.forget
    mover = Mover(device, link, turns, PoolLink(link), ahead, compiling, neighbours, loras)
    mover.start()
    if options.stand_by:
        link.begins.wait()
    heartbeat.start(link)
    Engine(device, link, mover, turns, compiling).work_for_ever()


def _compiling(
    link: Link, turns: Turns, device: "Device", options: argparse.Namespace
) -> "Compiling":
    """Blocks are compiled in idle time from now on, when the host says which."""
    from workshop_gpu.worker.compiler_process import CompilerProcess
    from workshop_gpu.worker.compiling import Compiling
    from workshop_gpu.worker.twin_store import open_store

    compiler = CompilerProcess(limit_s=options.compile_limit)
    store = open_store(options, device)
    compiling = Compiling(store, turns, options.device, link.send, compiler)
    link.compile = compiling.compile
    compiling.start()
    return compiling


def _leave_cards_alone() -> None:
    """CUDA reads CUDA_VISIBLE_DEVICES once, when it starts. torch must not start it only to answer
    a library that asks at its import whether there is a card: it asks the driver."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"


def _say_where_it_ends() -> None:
    """A crash leaves in the log what each thread did; so does SIGUSR1, which the host sends to a
    worker that hangs before it ends it. A thread that broke takes the process with it: half a
    worker would keep its device and do nothing."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    threading.excepthook = _end_with_thread


def _end_with_thread(broken: threading.ExceptHookArgs) -> None:
    sys.excepthook(broken.exc_type, broken.exc_value or broken.exc_type(), broken.exc_traceback)
    name = broken.thread.name if broken.thread else "?"
    end_process(EXIT_THREAD_BROKE, f"its thread {name} broke: {broken.exc_value!r}")


def _take_over(link: Link, options: argparse.Namespace) -> "Device":
    """Everything is imported and no card was touched: wait for the device to work on, then open
    it."""
    from workshop_gpu.worker.devices import open_device, open_early

    link.send(StandingBy(os.getpid()))
    wanted = link.take_overs.get()
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join((wanted.gpu_uuid, *wanted.neighbours.values()))
    options.neighbours = list(wanted.neighbours)
    options.device, options.total_bytes = wanted.device, wanted.total_bytes
    opens = partial(open_device, wanted.device, wanted.total_bytes, wanted.context_bytes)
    device = _open(partial(open_early, opens, link.begins))
    if not _is_card(device.uuid, wanted.gpu_uuid):
        end_process(EXIT_NO_DEVICE, f"this process came to the card {device.uuid} instead")
    return device


def _open(opens: Callable[[], "Device"]) -> "Device":
    from workshop_gpu.worker.devices import DeviceUnusable

    try:
        return opens()
    except DeviceUnusable as problem:
        end_process(EXIT_NO_DEVICE, str(problem))


def _is_card(uuid: str, wanted: str) -> bool:
    """Whether it is the card that was asked for, as far as the driver's names tell."""
    return uuid == wanted or not uuid or not wanted.startswith("GPU-")


def _freeze() -> None:
    """The libraries' objects stay for ever: later collections need not visit them. Nor does one
    now: that takes half a second, and what they left lying about is 8 MB."""
    gc.freeze()
    gc.enable()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workshop_gpu.worker")
    parser.add_argument("--device", choices=["cuda", "cpu"])
    parser.add_argument("--stand-by", action="store_true", help="the host names the device later")
    parser.add_argument("--total-bytes", type=int, default=0, help="pretended VRAM of the cpu")
    parser.add_argument("--fd", type=int, required=True, help="the socket to the host")
    parser.add_argument(
        "--neighbours", nargs="*", default=[], help="names of the devices visible after its own"
    )
    parser.add_argument("--compiled", default="", help="where compiled blocks are kept")
    parser.add_argument(
        "--compiler", default=AUTO, choices=COMPILERS, help="what compiles blocks (auto: on a card)"
    )
    parser.add_argument(
        "--compile-limit", type=float, default=0.0, help="seconds until its next block (0: none)"
    )
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (0: torch decides)")
    options = parser.parse_args()
    if bool(options.device) == options.stand_by:
        parser.error("either --device or --stand-by is needed")
    if options.device == "cpu" and options.total_bytes <= 0:
        parser.error("--device cpu needs --total-bytes, the VRAM that it pretends to have")
    return options


def _allow_many_files() -> None:
    """Large parts of the weight pool come in many segments, a descriptor each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _prepare_environment(threads: int) -> None:
    """What torch, transformers and tqdm read once, when they are imported."""
    if threads > 0:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    # Else, on some processors, a picture's last bits depend on where in memory its weights lie.
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")
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
