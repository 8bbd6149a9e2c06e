"""The shell around the conductor: runs effects, supervises workers, reads GPUs, keeps images."""
