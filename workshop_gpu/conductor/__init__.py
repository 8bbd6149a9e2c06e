"""What happens next: a pure state machine without I/O, clock, randomness, logging or locks."""
