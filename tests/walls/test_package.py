"""What is in the wheel that people install."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MODELS = ("shapes", "shapes-dit", "shapes-dit-turbo")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def test_installing_enables_the_server_extension(wheel):
    (name,) = [
        name
        for name in wheel.namelist()
        if name.endswith("etc/jupyter/jupyter_server_config.d/workshop_gpu.json")
    ]
    assert ".data/data/" in name
    config = json.loads(wheel.read(name))
    assert config["ServerApp"]["jpserver_extensions"] == {"workshop_gpu": True}


def test_the_wheel_holds_the_shipped_models_and_no_pickle(wheel):
    names = set(wheel.namelist())
    for model in MODELS:
        assert f"workshop_gpu/catalogue/assets/{model}/model_index.json" in names
        assert f"workshop_gpu/catalogue/assets/{model}/vae/diffusion_pytorch_model.safetensors" in (
            names
        )
    assert not [name for name in names if name.endswith((".bin", ".ckpt", ".pt", ".pkl"))]


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    names = set(wheel.namelist())
    kept = (".py", ".js", ".css", ".json", ".safetensors", ".toml", ".typed", ".yaml")
    files = [path for path in (ROOT / "workshop_gpu").rglob("*") if path.name.endswith(kept)]
    missing = {str(path.relative_to(ROOT)) for path in files} - names
    assert missing == set()
    assert "workshop_gpu/py.typed" in names


def test_the_wheel_holds_the_package_only(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.startswith("workshop_gpu-")} == {"workshop_gpu"}


def test_installing_brings_the_panel(wheel):
    names = wheel.namelist()
    (package,) = [
        name for name in names if name.endswith("labextensions/workshop-gpu/package.json")
    ]
    folder = package.removesuffix("package.json")
    assert folder.endswith(".data/data/share/jupyter/labextensions/workshop-gpu/")
    entry = json.loads(wheel.read(package))["jupyterlab"]["_build"]["load"]
    assert {folder + entry, folder + "install.json"} < set(names)
    assert folder + "schemas/workshop-gpu/plugin.json" in names
    assert json.loads(wheel.read(folder + "install.json"))["packageName"] == "workshop-gpu"


def test_the_panel_has_the_version_of_the_package(wheel):
    panel = json.loads((ROOT / "labextension" / "package.json").read_text())
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    assert f"\nVersion: {panel['version']}\n" in wheel.read(metadata).decode()


def test_the_panels_packages_are_pinned_by_what_they_are_and_not_by_an_address():
    lock = (ROOT / "labextension" / "yarn.lock").read_text()
    assert "http" not in lock
    assert lock.count("checksum: ") > 100


def test_the_command_and_the_provisioner_are_declared(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    text = wheel.read(name).decode()
    assert "workshop-gpu = workshop_gpu.cli:main" in text
    assert "jupyter_client.kernel_provisioners" in text
