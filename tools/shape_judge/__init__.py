"""Judges pictures of shapes from their pixels alone. Shares no drawing code with the trainer."""
