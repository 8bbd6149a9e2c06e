"""The walls of the house: who may import whom, and what nobody may do."""

import ast
import re
import subprocess
import sys

import pytest

from tests.walls.imports import PACKAGE, imported_from, imports, sources, tree

HEAVY = ("torch", "diffusers", "transformers", "accelerate", "safetensors", "numpy", "peft")
WORKER_ONLY = ("torch", "diffusers", "transformers", "accelerate", "safetensors", "peft")
FOLDERS = ("api", "catalogue", "cli", "client", "conductor", "host", "simulation", "worker")


def named(path):
    return str(path.relative_to(PACKAGE))


def outside(folder):
    return [path for path in sources() if folder not in path.relative_to(PACKAGE).parts[:1]]


def test_only_the_worker_imports_torch_and_its_kin():
    found = {named(path): imported_from(path, *WORKER_ONLY) for path in outside("worker")}
    assert {path: names for path, names in found.items() if names} == {}
    assert any(imported_from(path, "torch") for path in sources("worker"))


def test_only_the_protocol_of_the_worker_is_imported_from_outside():
    for path in outside("worker"):
        names = [
            name
            for name in imported_from(path, "workshop_gpu.worker")
            if not name.startswith("workshop_gpu.worker.protocol")
        ]
        assert names in ([], ["workshop_gpu.worker"]), named(path)
    for path in ("protocol.py", "__init__.py"):
        assert not imported_from(PACKAGE / "worker" / path, *HEAVY)


def test_the_conductor_imports_only_itself_msgspec_and_the_standard_library():
    allowed = {"msgspec", "workshop_gpu", *sys.stdlib_module_names}
    for path in sources("conductor"):
        for name in imports(path):
            assert name.split(".")[0] in allowed, f"{named(path)} imports {name}"
            if name.startswith("workshop_gpu"):
                assert name.startswith("workshop_gpu.conductor"), f"{named(path)}: {name}"


def test_the_conductor_has_no_clock_no_randomness_no_io_and_no_log():
    banned = (
        "anyio", "asyncio", "io", "logging", "multiprocessing", "os", "pathlib", "random",
        "secrets", "socket", "subprocess", "threading", "time", "uuid",
    )  # fmt: skip
    for path in sources("conductor"):
        assert imported_from(path, *banned) == [], named(path)
        calls = [
            node.func.id
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        assert not {"open", "print", "input"} & set(calls), named(path)


def test_the_client_knows_of_the_server_only_what_crosses_the_wire():
    allowed = ("workshop_gpu.api.schemas", "workshop_gpu.conductor.errors")
    for path in sources("client"):
        server = imported_from(
            path, "workshop_gpu.api", "workshop_gpu.host", "workshop_gpu.conductor",
            "workshop_gpu.catalogue", "workshop_gpu.worker", "workshop_gpu.app",
        )  # fmt: skip
        names = [
            name for name in server if name != "workshop_gpu.api" and not name.startswith(allowed)
        ]
        states = ("workshop_gpu.conductor.states", "workshop_gpu.conductor.effects")
        assert [name for name in names if not name.startswith(states)] == [], named(path)


def test_a_request_goes_one_way_and_never_back_up():
    above = {
        "conductor": ("api", "app", "cli", "client", "host", "catalogue", "simulation", "worker"),
        "simulation": ("api", "app", "cli", "client", "host", "catalogue", "worker"),
        "catalogue": ("api", "app", "cli", "client", "host"),
        "worker": ("api", "app", "cli", "client", "host", "catalogue"),
        "host": ("api", "app", "cli", "client"),
        "api": ("cli", "client"),
    }
    for folder, others in above.items():
        for path in sources(folder):
            found = imported_from(path, *(f"workshop_gpu.{other}" for other in others))
            if folder == "api":
                found = [name for name in found if not name.startswith("workshop_gpu.client.")]
            assert found == [], f"{named(path)} looks up the line"


def test_nobody_unpickles():
    for path in sources():
        assert imported_from(path, "pickle", "cPickle", "dill", "cloudpickle", "shelve") == []
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call) and _called(node) == "torch.load":
                pytest.fail(f"{named(path)}:{node.lineno} opens a pickle checkpoint")


def test_nobody_trusts_remote_code_or_starts_a_shell():
    for path in sources():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.Call):
                continue
            where = f"{named(path)}:{node.lineno}"
            assert _called(node) not in ("os.system", "os.popen", "eval", "exec"), where
            for keyword in node.keywords:
                banned = keyword.arg in ("shell", "trust_remote_code", "allow_pickle")
                is_false = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                assert not banned or is_false, f"{where} passes {keyword.arg}"


MOVERS = {
    "enable_model_cpu_offload",
    "enable_sequential_cpu_offload",
    "enable_group_offload",
    "apply_group_offloading",
    "dispatch_model",
    "cpu_offload",
    "add_hook_to_module",
    "record_stream",
    "pin_memory",
}
"""What moves modules or frees memory behind the back of whoever moves the weights, or takes twice
the memory: torch's own pinned memory comes in powers of two."""


def test_nobody_but_the_worker_itself_moves_weights():
    for path in sources():
        for node in ast.walk(tree(path)):
            name = getattr(node, "attr", getattr(node, "id", ""))
            assert name not in MOVERS, f"{named(path)}:{getattr(node, 'lineno', 0)} uses {name}"


MARKUP = re.compile(r"(inner|outer)HTML|insertAdjacentHTML|dangerouslySet|createContextualFragment")


def test_no_script_of_ours_makes_markup_of_a_text():
    scripts = [
        *(PACKAGE / "client").rglob("*.js"),
        *(PACKAGE.parent / "labextension" / "src").rglob("*.ts*"),
    ]
    assert len(scripts) > 30
    for path in scripts:
        assert not MARKUP.search(path.read_text(encoding="utf-8")), path


def _called(node):
    return ast.unparse(node.func)


@pytest.mark.parametrize("module", ["workshop_gpu", "workshop_gpu.app", "workshop_gpu.cli"])
def test_importing_the_server_imports_no_torch(module):
    question = (
        f"import sys, {module}; heavy = {HEAVY!r}; "
        "print(sorted(name for name in heavy if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", question], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_folder_of_the_house_is_guarded():
    found = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert found == set(FOLDERS), "a new folder needs its walls here"


def test_no_file_is_longer_than_can_be_read_in_one_sitting():
    long = {named(path): len(path.read_text().splitlines()) for path in sources()}
    assert {path: lines for path, lines in long.items() if lines > 500} == {}
