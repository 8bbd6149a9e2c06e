"""The documentation's build: Sphinx, Markdown through MyST, the theme of the Jupyter projects."""

from pathlib import Path
from typing import Any

from nbconvert import MarkdownExporter

from workshop_gpu import __version__

HERE = Path(__file__).parent

project = "Workshop GPU"
author = "Workshop GPU contributors"
copyright = "2026, Workshop GPU contributors"
version = release = __version__

extensions = ["myst_parser", "IPython.sphinxext.ipython_console_highlighting"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "pydata_sphinx_theme"
html_title = "Workshop GPU"
html_theme_options = {
    "navigation_with_keys": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
}
html_show_sourcelink = False


def render_notebooks(app: Any) -> None:
    """A page for each notebook, as it is in the repository: without outputs."""
    pages = HERE / "users" / "notebooks"
    pages.mkdir(exist_ok=True)
    for notebook in sorted((HERE.parent / "notebooks").glob("*.ipynb")):
        text, _ = MarkdownExporter().from_filename(str(notebook))
        page = pages / f"{notebook.stem}.md"
        text = text.strip().replace("```python", "```ipython3") + "\n"
        if not page.exists() or page.read_text() != text:  # else Sphinx builds it again
            page.write_text(text)


def setup(app: Any) -> None:
    """What Sphinx calls."""
    app.connect("builder-inited", render_notebooks)
