"""`sglang serve MODEL …` and `sglang version`, as in the real package."""

import sys

from .. import __version__


def main() -> None:
    """Serve, or print the version; anything else ends with exit status 2."""
    command, words = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if command == "version":
        sys.stdout.write(f"sglang version: {__version__}\n")
    elif command == "serve":
        serve(words)
    else:
        sys.stderr.write("usage: sglang [-h] {serve,version} ...\n")
        sys.exit(2)


def serve(words: list[str]) -> None:
    """Run the server; a first word that is no option is the model."""
    from ..standin.main import serve  # noqa: PLC0415 -- `sglang version` needs none of it

    serve(["--model-path", *words] if words and not words[0].startswith("-") else words)


if __name__ == "__main__":
    main()
