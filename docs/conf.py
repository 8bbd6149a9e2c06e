"""The documentation's build: Sphinx, Markdown through MyST, the theme of the Jupyter projects."""

from workshop_gpu import __version__

project = "Workshop GPU"
author = "Workshop GPU contributors"
copyright = "2026, Workshop GPU contributors"
version = release = __version__

extensions = ["myst_parser"]
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
