"""The run folder: one writer, the history, and how both stay small."""
