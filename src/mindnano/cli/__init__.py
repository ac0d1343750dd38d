"""The `mindnano` program: one file a command. Imports the engine only when a command runs."""

from mindnano.cli.app import main

__all__ = ["main"]
