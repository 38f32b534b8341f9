"""ExecStart of every engine unit: gate, start the engine, prove it ready, tell systemd, watch it, drain it, end it."""
