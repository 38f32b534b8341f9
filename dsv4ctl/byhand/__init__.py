"""Engines that somebody started by hand: what they ask for, the config that asks for the same, and what would differ.

Pure: command lines, environments and what the kernel tells of them in, texts and values out.
"""
