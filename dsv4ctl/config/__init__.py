"""TOML and flags become a checked HostSpec, or every problem at once. Knows the schema; reads no file."""

from dsv4ctl.config.load import Effective, decode, load
from dsv4ctl.config.show import Row, rows, texts
from dsv4ctl.config.warn import warnings

__all__ = ["Effective", "Row", "decode", "load", "rows", "texts", "warnings"]
