"""The console script of the stand-in engine."""
