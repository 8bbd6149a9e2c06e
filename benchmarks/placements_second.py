"""The part `second` of the placements' benchmark: another card's memory instead of the host's.

Half and all of the denoiser's blocks streamed from host memory and from the second card; the text
encoders staged, and at home on the second card. It needs two cards (with `--small` both are
pretended).
"""

import msgspec

from benchmarks.placements_bench import BUFFERS, Bench, Limits, drawn, load, loader, placed
from benchmarks.report import shown
from workshop_gpu.conductor.rungs import DENOISER, ENCODERS, RESIDENT, VAE, Placement

MOST_STEPS = 10
"""Of a picture: the seconds of one step are asked for, and of reading the prompt."""
SECOND = "cuda:1"
_PEER_BYTES = 2**30
ON_SECOND = "the second card"
"""How the names of placements end that take memory of it."""
FROM_HOST = "from the host"


def second(bench: Bench) -> None:
    """Every placement in turn, in place. Raises SystemExit where there is one card alone."""
    if not bench.small and bench.torch.cuda.device_count() < 2:
        raise SystemExit("This part needs two cards, and this machine has no second one.")
    bench.steps = min(bench.steps, MOST_STEPS)
    worker = loader(bench, neighbours=(SECOND,))
    model = load(worker, bench, RESIDENT)
    resident = drawn(worker, bench, model)
    limits = Limits.of(bench, model, resident)
    bench.add(shown("resident, a step", resident.step_s, "s"))
    bench.add(shown("resident, a job", resident.job_s, "s"))
    peer = _peer_bytes_per_s(bench)
    bench.add(shown("second card's memory to the first", peer / 1e9, "GB/s"))
    from_second = msgspec.structs.replace(limits, bus_bytes_per_s=peer)
    roles = {role.role: role for role in model.roles}
    for name, placement in _placements(sum(roles[DENOISER].blocks_bytes)):
        model = placed(worker, bench, name, placement)
        there_gb = worker.elsewhere_bytes.get(SECOND, 0) / 1e9
        bench.add(shown(f"{name}, on the second card", there_gb, "GB"))
        judged = from_second if placement.source else limits
        judged.judge(bench, name, model, drawn(worker, bench, model))


def _placements(blocks_bytes: int) -> list[tuple[str, Placement]]:
    found = [("encoders staged", Placement(staged=(ENCODERS,)))]
    for share in (0.5, 1.0):
        streamed = Placement((ENCODERS, VAE), (), int(share * blocks_bytes), BUFFERS)
        there = msgspec.structs.replace(streamed, source=SECOND)
        found += [
            (f"{share:.0%} streamed {FROM_HOST}", streamed),
            (f"{share:.0%} streamed from {ON_SECOND}", there),
        ]
    encoders = Placement(elsewhere=(ENCODERS,), source=SECOND)
    found.append((f"encoders on {ON_SECOND}", encoders))
    return found


def _peer_bytes_per_s(bench: Bench) -> float:
    """The best of some copies from the second card's memory."""
    torch = bench.torch
    there = torch.device("cpu" if bench.small else SECOND)
    size = _PEER_BYTES // 64 if bench.small else _PEER_BYTES
    source = torch.empty(size, dtype=torch.uint8, device=there)
    onto = torch.empty(size, dtype=torch.uint8, device=bench.kind)
    fastest_s = float("inf")
    for _ in range(4):
        started = bench.now()
        onto.copy_(source, non_blocking=True)
        fastest_s = min(fastest_s, bench.now() - started)
    return size / fastest_s
