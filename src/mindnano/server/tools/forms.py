"""The forms of tool calls that are known."""

from __future__ import annotations

from mindnano.server.tools.form import ToolForm
from mindnano.server.tools.ling import KEY, OPENING, LingForm


def find_form(template: str) -> ToolForm | None:
    """The form that a chat template writes calls in; None where it has none that is known."""
    return LingForm() if OPENING in template and KEY in template else None
