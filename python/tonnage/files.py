"""Writing files: the whole file or none of it."""
from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .errors import Error

DENIED = 4


def write(path: Path, text: str, make_folders: bool = False) -> None:
    """Writes a temporary file beside `path`, waits until it is on the disk, and renames it. Error when that is not possible."""
    try:
        if make_folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise Error(f"{path}: {error.strerror}", DENIED if isinstance(error, PermissionError) else 2) from None
