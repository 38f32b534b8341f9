"""So that `import nixl` finds what moves KV by UCX; nothing of it is here."""
