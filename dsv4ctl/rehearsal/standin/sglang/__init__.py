"""Stands in for SGLang 0.5.23 on a machine without GPUs; stdlib only, so that any interpreter can run it."""

__version__ = "0.5.23"
