"""Measured figures. Each is a ratio or a time of one run on one machine; none is kept in the code."""
