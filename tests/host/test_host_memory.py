import psutil
import pytest

from workshop_gpu.host import host_memory

GB = 10**9


@pytest.fixture
def machine(monkeypatch):
    """A machine with 100 GB, 80 of them available."""

    class Memory:
        total, available = 100 * GB, 80 * GB

    monkeypatch.setattr(psutil, "virtual_memory", Memory)


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def read(root):
    memory = host_memory.read(root)
    return memory.total_bytes // GB, memory.available_bytes // GB


@pytest.mark.usefixtures("machine")
def test_without_control_groups_the_machine_s_figures_count(tmp_path):
    assert read(tmp_path) == (100, 80)


@pytest.mark.usefixtures("machine")
def test_the_narrowest_group_around_this_process_counts(tmp_path):
    write(tmp_path, "proc/self/cgroup", "0::/slurm/job\n")
    write(tmp_path, "sys/fs/cgroup/slurm/job/memory.max", "max\n")
    write(tmp_path, "sys/fs/cgroup/slurm/job/memory.current", f"{3 * GB}\n")
    write(tmp_path, "sys/fs/cgroup/slurm/memory.max", f"{16 * GB}\n")
    write(tmp_path, "sys/fs/cgroup/slurm/memory.current", f"{10 * GB}\n")
    write(
        tmp_path,
        "sys/fs/cgroup/slurm/memory.stat",
        f"anon 1\ninactive_file {2 * GB}\nactive_file {1 * GB}\n",
    )
    assert read(tmp_path) == (16, 9)


@pytest.mark.usefixtures("machine")
def test_in_a_container_the_limit_at_the_top_counts(tmp_path):
    write(tmp_path, "proc/self/cgroup", "0::/docker/of/the/world/outside\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", f"{8 * GB}\n")
    write(tmp_path, "sys/fs/cgroup/memory.current", f"{1 * GB}\n")
    assert read(tmp_path) == (8, 7)


@pytest.mark.usefixtures("machine")
def test_the_older_kind_of_group_counts_too(tmp_path):
    write(tmp_path, "proc/self/cgroup", "5:cpu:/\n4:hugetlb,memory:/job\n0::/\n")
    folder = "sys/fs/cgroup/memory/job"
    write(tmp_path, f"{folder}/memory.limit_in_bytes", f"{20 * GB}\n")
    write(tmp_path, f"{folder}/memory.usage_in_bytes", f"{5 * GB}\n")
    write(
        tmp_path,
        f"{folder}/memory.stat",
        f"total_inactive_file {1 * GB}\ntotal_active_file {2 * GB}\n",
    )
    assert read(tmp_path) == (20, 18)


@pytest.mark.usefixtures("machine")
def test_no_limit_and_no_sense_are_no_limit(tmp_path):
    write(tmp_path, "proc/self/cgroup", "4:memory:/\nnonsense\n0::/\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert read(tmp_path) == (100, 80)


def test_this_machine_has_memory():
    memory = host_memory.read()
    assert 0 < memory.available_bytes <= memory.total_bytes
