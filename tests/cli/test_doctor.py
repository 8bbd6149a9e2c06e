import json
import subprocess
import sys

import pytest

from workshop_gpu.catalogue.catalogue import Catalogue
from workshop_gpu.cli import doctor, findings, machine, main
from workshop_gpu.cli.findings import Level
from workshop_gpu.cli.machine import Machine, MemoryHolder, TorchReport
from workshop_gpu.host.gpu_readings import GPU

GB = 10**9
PACKAGES = dict.fromkeys(machine.PACKAGES, "1.0")
H100 = GPU(0, "GPU-1", "NVIDIA H100", 80 * GB, 2 * GB)


def a_machine(**changes):
    facts = {
        "system": "Linux 6.1 (x86_64)",
        "python": "3.11.7",
        "cpus": 2,
        "ram_bytes": 24 * GB,
        "ram_free_bytes": 20 * GB,
        "pool_bytes": 10 * GB,
        "pool_problem": "",
        "driver": "",
        "gpus": (),
        "holders": (),
        "packages": PACKAGES,
        "node": "",
        "extension_enabled": True,
        "cache_folder": "/cache",
        "cache_free_bytes": 100 * GB,
        "data_folder": "/data",
        "data_free_bytes": 100 * GB,
    }
    return Machine(**(facts | changes))


@pytest.fixture
def catalogue(tmp_path):
    return Catalogue(tmp_path / "models.toml", hub=tmp_path / "hub")


def levels(found):
    return [finding.level for finding in found]


def texts(found):
    return "\n".join(f"{finding.text} {finding.remedy}" for finding in found)


def test_a_good_machine_without_a_gpu_is_fine_and_told_that_it_uses_the_cpu():
    assert set(levels(findings.of_machine(a_machine()))) == {Level.FINE}
    assert "on the CPU" in texts(findings.of_gpus(a_machine()))
    assert "on the CPU" in next(findings.verdicts(a_machine(), TorchReport("2.13"), images=True))


def test_the_weight_pool_is_told_or_why_there_is_none():
    assert "weight pool: 10.0 GB" in texts(findings.of_machine(a_machine()))
    without = a_machine(pool_problem="sharing memory with the workers needs Linux")
    assert levels(findings.of_machine(without)).count(Level.NOTE) == 1
    assert "no weight pool: sharing memory" in texts(findings.of_machine(without))


def test_what_is_kept_of_jobs_is_told_and_a_journal_that_was_set_aside():
    fine = list(findings.of_journal(a_machine(kept_images_bytes=3 * GB)))
    assert "pictures kept: 3.0 GB" in texts(fine)
    assert levels(fine) == [Level.FINE]
    broken = a_machine(broken_journals=("journal.broken-20260101-120000.sqlite3",))
    assert "journal.broken-20260101-120000.sqlite3" in texts(findings.of_journal(broken))


def test_little_memory_and_little_disk_are_noted():
    poor = a_machine(ram_free_bytes=GB, cache_free_bytes=GB, data_free_bytes=GB)
    assert levels(findings.of_machine(poor)).count(Level.NOTE) == 3


def test_a_gpu_names_its_memory_and_who_has_it():
    holder = MemoryHolder(0, "python", 4711, 60 * GB)
    free = a_machine(driver="560.1", gpus=(H100,))
    full = a_machine(
        driver="560.1", gpus=(GPU(0, "GPU-1", "H100", 80 * GB, 61 * GB),), holders=(holder,)
    )
    assert levels(findings.of_gpus(free)) == [Level.FINE, Level.FINE]
    assert levels(findings.of_gpus(full)) == [Level.FINE, Level.NOTE]
    assert "python (pid 4711, 60.0 GB)" in texts(findings.of_gpus(full))
    assert "78.0 GB free" in texts(findings.of_gpus(free))
    apart = a_machine(driver="560.1", gpus=(H100, H100), gpus_apart=((0, 1),))
    assert levels(findings.of_gpus(apart))[-1] is Level.NOTE
    assert "cuda:0 and cuda:1 cannot read" in texts(findings.of_gpus(apart))


def test_a_missing_package_stops_images_and_says_what_to_install():
    found = list(findings.of_packages(a_machine(packages=PACKAGES | {"torch": ""})))
    assert any(finding.stops_images for finding in found)
    assert 'pip install "workshop-gpu[gpu]"' in texts(found)


def test_an_extension_that_is_switched_off_is_a_problem_but_stops_no_images():
    found = list(findings.of_packages(a_machine(extension_enabled=False)))
    assert Level.PROBLEM in levels(found)
    assert not any(finding.stops_images for finding in found)
    assert "jupyter server extension enable" in texts(found)


def test_torch_is_judged_by_what_it_can_use():
    with_gpu = a_machine(gpus=(H100,))
    broken = list(findings.of_torch(TorchReport(problem="ImportError: x"), with_gpu))
    assert broken[0].stops_images
    cpu_build = texts(findings.of_torch(TorchReport("2.13.0+cpu"), with_gpu))
    assert "Install a torch built for CUDA" in cpu_build
    failing = texts(findings.of_torch(TorchReport("2.13", "13.0", 1, "no kernel image"), with_gpu))
    assert "no kernel image" in failing
    good = findings.of_torch(TorchReport("2.13", "13.0", 1), with_gpu)
    assert levels(good) == [Level.FINE, Level.FINE]
    slower = list(
        findings.of_torch(TorchReport("2.13", "13.0", 1, uncompiled="no triton"), with_gpu)
    )
    assert levels(slower) == [Level.FINE, Level.NOTE]
    assert "not compiled: no triton" in slower[1].text


def test_models_are_judged_one_by_one(catalogue, tmp_path):
    (tmp_path / "models.toml").write_text(
        '[[model]]\nid = "s"\nshipped = "shapes"\n'
        '[[model]]\nid = "gone"\nsource = { folder = "nowhere" }\n'
        '[[model]]\nid = "far"\nsource = { hub = "org/far" }\n'
        '[[model]]\nid = "off"\nshipped = "shapes"\nenabled = false\nreason = "on Thursday"\n'
    )
    catalogue.load()
    found = list(findings.of_models(catalogue, a_machine()))
    assert levels(found) == [Level.FINE, Level.PROBLEM, Level.NOTE, Level.NOTE]
    assert "on Thursday" in texts(found)
    tiny = list(findings.of_models(catalogue, a_machine(ram_bytes=10**6)))
    assert "the largest device has" in texts(tiny)


def test_without_any_usable_model_no_image_can_be_made(catalogue, tmp_path):
    (tmp_path / "models.toml").write_text('[[model]]\nid = "g"\nsource = { folder = "x" }\n')
    catalogue.load()
    assert any(finding.stops_images for finding in findings.of_models(catalogue, a_machine()))


def test_the_report_of_this_machine_ends_with_a_verdict(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "ask_torch", lambda: TorchReport("2.13.0"))
    status = main(["doctor"])
    printed = capsys.readouterr().out
    assert status == 0
    for title in ("Machine", "GPUs", "Packages", "torch", "Models", "What will work"):
        assert f"\n{title}\n" in printed


def test_a_machine_that_cannot_make_images_ends_with_status_1(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "ask_torch", lambda: TorchReport(problem="ImportError: broken"))
    assert main(["doctor"]) == 1
    assert "Pictures cannot be made here" in capsys.readouterr().out


def test_the_question_to_torch_is_answered_by_a_process_of_its_own(monkeypatch):
    def answer(command, **options):
        assert command[0] == sys.executable
        report = {"version": "2.13", "cuda": "", "cards": 0, "problem": ""}
        return subprocess.CompletedProcess(command, 0, f"noise\n{json.dumps(report)}\n", "")

    monkeypatch.setattr(subprocess, "run", answer)
    assert machine.ask_torch() == TorchReport("2.13")


def test_a_torch_that_hangs_or_dies_is_reported(monkeypatch):
    def hang(command, **options):
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "did not answer" in machine.ask_torch().problem

    def die(command, **options):
        return subprocess.CompletedProcess(command, -9, "", "Traceback\nImportError: x\n")

    monkeypatch.setattr(subprocess, "run", die)
    assert machine.ask_torch().problem == "ImportError: x"
