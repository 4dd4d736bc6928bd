"""Errors that a user meets.  Each carries the exit status of the command."""
from __future__ import annotations


class Error(Exception):
    """Base of all of Tonnage's errors: one line for the user, and `status`, the exit status of the command."""

    status = 2

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        if status is not None:
            self.status = status


class RecipeError(Error):
    """A recipe file that cannot be used."""


class CaptureError(Error):
    """A training step that cannot be captured: names the op and the module."""


class VirtualCardError(Error):
    """The stand-in for a card that is not there cannot be had."""


class LibraryError(Error):
    """A call of the C library failed; `code` is its TN_E... value."""

    def __init__(self, message: str, code: int = 0, status: int = 2):
        super().__init__(message, status)
        self.code = code


class MissingDependency(Error):
    """PyTorch is not installed, or too old."""
