"""dsv4ctl: deploy, watch over and tear down DeepSeek-V4 inference under systemd."""

__version__ = "0.1.0"
