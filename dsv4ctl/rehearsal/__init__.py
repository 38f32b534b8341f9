"""A private systemd in namespaces, with stand-in GPUs and a stand-in engine.

The embedded default and the tests' bed. Touches nothing of the host.
"""
