"""`workshop-gpu doctor`: what this machine has, what will work, what not, and what to do."""

import argparse
from collections.abc import Iterable

from workshop_gpu import __version__
from workshop_gpu.catalogue.catalogue import Catalogue, default_models_file
from workshop_gpu.cli import findings
from workshop_gpu.cli.findings import Finding, Level
from workshop_gpu.cli.machine import TorchReport, ask_torch, read_machine


def doctor(options: argparse.Namespace) -> int:
    """Print the report; returns 0 when pictures can be made, else 1."""
    machine = read_machine()
    catalogue = Catalogue(options.models_file or default_models_file())
    catalogue.load()
    print(f"Workshop GPU {__version__}")
    seen: list[Finding] = []
    seen += _section("Machine", findings.of_machine(machine))
    seen += _section("Jobs", findings.of_journal(machine))
    seen += _section("GPUs", findings.of_gpus(machine))
    seen += _section("Packages", findings.of_packages(machine))
    torch: TorchReport | None = None
    if machine.packages.get("torch") and not options.no_torch_check:
        torch = ask_torch()
        seen += _section("torch", findings.of_torch(torch, machine))
    seen += _section("Models", findings.of_models(catalogue, machine))
    images = not any(finding.stops_images for finding in seen)
    print("\nWhat will work")
    for verdict in findings.verdicts(machine, torch, images):
        print(f"  {verdict}")
    return 0 if images else 1


def _section(title: str, found: Iterable[Finding]) -> list[Finding]:
    print(f"\n{title}")
    listed = list(found)
    for finding in listed:
        mark = finding.level.value
        print(f"  {mark:<8}{finding.text}")
        if finding.remedy:
            print(f"  {'':<8}{'→ ' if finding.level is not Level.FINE else ''}{finding.remedy}")
    return listed
