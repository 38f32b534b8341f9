"""So that `import mooncake` finds what moves KV by TCP or RDMA; nothing of it is here."""
