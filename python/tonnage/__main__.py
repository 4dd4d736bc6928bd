"""python -m tonnage VERB ...: the verbs that need PyTorch.  The tonnage command starts this; its own help is the fuller one."""
from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from . import options
from .errors import Error

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status; every error of ours is one line on stderr."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        status = run(words)
        sys.stdout.flush()
        return status
    except Error as error:
        print(f"tonnage: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("\ntonnage: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader has left, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


def run(words: list[str]) -> int:
    verbs = ", ".join(options.VERBS)
    if not words or words[0] in ("-h", "--help"):
        print(f"usage: python -m tonnage VERB ...\n\nverbs: {verbs}")
        return 0
    verb, rest = words[0], words[1:]
    if verb not in options.VERBS:
        raise Error(f"unknown verb {verb!r}; here are: {verbs}")
    parser = options.parser_for(verb)
    args = parser.parse_intermixed_args(rest)
    if verb == "profile":
        from . import profile

        return profile.main(rest)
    if verb == "fit":
        from . import virtual_card

        virtual_card.torch_version()
        from . import train

        return train.main(rest)
    from . import verbs as here

    return here.VERBS[verb](args)


if __name__ == "__main__":
    sys.exit(main())
