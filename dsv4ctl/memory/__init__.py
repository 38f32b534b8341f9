"""The memory planner: what an engine of DeepSeek-V4 takes of its GPUs. Arithmetic only; every name has its unit."""
