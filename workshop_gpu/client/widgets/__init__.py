"""Widgets for notebooks, each with its own JavaScript and CSS beside it."""
