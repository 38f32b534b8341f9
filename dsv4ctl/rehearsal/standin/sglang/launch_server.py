"""`python -m sglang.launch_server …`: the name under which dsv4ctl starts the engine."""

# Every spawned child imports this module again, as the real one does; so it must stay light.
import sys
import warnings

if __name__ == "__main__":
    warnings.warn(
        "'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.\n"
        "  Example: sglang serve --model-path <model> [options]",
        UserWarning,
        stacklevel=1,
    )
    from .standin.main import serve

    serve(sys.argv[1:])
