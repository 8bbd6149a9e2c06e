"""The shipped notebooks run from top to bottom against a real server."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.serverprocess import ROOT, ServerProcess
from workshop_gpu.client.images import read_metadata

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_without_an_error(
    path: Path, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WORKSHOP_GPU_URL", server.url)
    monkeypatch.setenv("WORKSHOP_GPU_TOKEN", server.token)
    notebook = read(path)
    resources = {"metadata": {"path": str(tmp_path)}}
    limits = {"timeout": 240, "startup_timeout": 240}
    NotebookClient(notebook, resources=resources, **limits).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert {"image/png", "text/html"} <= kinds
    for image in tmp_path.glob("*.png"):
        assert "prompt" in read_metadata(image)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    for cell in read(path).cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def test_the_first_notebook_shows_all_that_a_beginner_needs() -> None:
    first = read(ROOT / "notebooks" / "01-first-image.ipynb")
    text = "\n".join(cell.source for cell in first.cells)
    for name in ("wg.generate", "wg.Studio", "wg.models", "wg.again", "wg.hold", "%%generate"):
        assert name in text


def test_each_notebook_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "users" / "notebooks.md").read_text()
    for path in NOTEBOOKS:
        assert f"<../../notebooks/{path.name}>" in page


def test_the_instructors_notebook_is_stored_without_a_token() -> None:
    cells = read(ROOT / "notebooks" / "90-instructor.ipynb").cells
    tokens = [line for cell in cells for line in cell.source.splitlines() if "token = " in line]
    assert tokens == ['token = ""']
