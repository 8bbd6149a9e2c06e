"""Rooms of simulated people over the real conductor and over others: no GPU, no clock, no I/O.

`python -m workshop_gpu.simulation workshop` says what each policy makes of a room.
"""
