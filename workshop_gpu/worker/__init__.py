"""GPU workers: one process per GPU, the only ones that import torch (not from this file)."""
