from pathlib import Path

import pytest

from tests.catalogue.on_disk import write_pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    return write_pipeline(tmp_path / "pipeline")


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    folder = tmp_path / "hub"
    folder.mkdir()
    return folder
