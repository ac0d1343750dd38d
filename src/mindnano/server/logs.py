"""The server's log. Above debug level nothing of a request is written: no text, no header, no path."""

from __future__ import annotations

import logging
import traceback

log = logging.getLogger("mindnano.server")


def trouble(what: str, error: BaseException) -> None:
    """Log an exception of ours: its type and where it was raised; its words, which may quote a request, at debug."""
    where = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    log.error("%s: %s\n%s", what, type(error).__name__, where)
    log.debug("%s: %s", type(error).__name__, error)


def configure(level: str) -> None:
    """Lines on stderr. uvicorn's own messages come only as warnings; it has no access log here."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    log.setLevel(level.upper())
