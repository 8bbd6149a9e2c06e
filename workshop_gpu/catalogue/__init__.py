"""The models an instructor offers: models.toml, model specs, the shipped models (assets/)."""
