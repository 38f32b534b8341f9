"""TOML and flags become a checked HostSpec, or every problem at once. Knows the schema; reads no file."""

from dsv4ctl.config.load import MOST_BYTES, Effective, decode, load
from dsv4ctl.config.show import Row, rows, texts
from dsv4ctl.config.warn import warnings

__all__ = ["MOST_BYTES", "Effective", "Row", "decode", "load", "rows", "texts", "warnings"]
