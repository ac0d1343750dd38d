"""The forms of tool calls that are known."""

from __future__ import annotations

from mindnano.server.tools import kimi, ling
from mindnano.server.tools.form import ToolForm


def find_form(template: str) -> ToolForm | None:
    """The form that a chat template writes calls in; None where it has none that is known."""
    if ling.OPENING in template and ling.KEY in template:
        return ling.LingForm()
    return kimi.KimiForm() if kimi.OPENING in template else None
