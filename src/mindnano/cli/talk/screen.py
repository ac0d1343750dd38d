"""How an answer is shown: progress of its prompt, thoughts, text."""

from __future__ import annotations

import sys

from mindnano.cli import output
from mindnano.cli.talk.partner import Event, Reading, Said, Thought


class Screen:
    """Shows one answer. `show` its events; `close` at its end, also after an interrupt.

    markdown: draw the answer as Markdown, where stdout is a terminal that can. Thoughts are dim there; where stdout is
    a file or a pipe they go to stderr, so that it holds answers only.
    """

    def __init__(self, markdown: bool) -> None:
        self._console = output.console()
        terminal = sys.stdout.isatty()
        self._markdown = None
        if markdown and terminal and not self._console.is_dumb_terminal:
            from mindnano.cli.talk.markdown import MarkdownStream

            self._markdown = MarkdownStream(self._console)
        self._terminal, self._thinking = terminal, False
        self._progress = output.PromptProgress()

    def show(self, event: Event) -> None:
        if isinstance(event, Reading):
            self._progress(event.done, event.total, event.seconds_left)
            return
        self._progress.close()
        if isinstance(event, Thought):
            self._think(event.text)
        elif isinstance(event, Said):
            self._say(event.text)

    def close(self) -> None:
        self._progress.close()
        self._end_thoughts()
        if self._markdown is not None:
            self._markdown.finish()
        else:
            print(flush=True)

    def _think(self, text: str) -> None:
        self._thinking = True
        if self._terminal:
            shown = output.printable(text, sys.stdout)
            self._console.print(shown, style="dim italic", end="", markup=False, soft_wrap=True)
        else:
            sys.stderr.write(output.printable(text, sys.stderr))
            sys.stderr.flush()

    def _end_thoughts(self) -> None:
        if self._thinking:
            self._thinking = False
            print("\n", file=sys.stdout if self._terminal else sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        self._end_thoughts()
        if self._markdown is not None:
            self._markdown.push(output.printable(text, sys.stdout))
        else:
            sys.stdout.write(output.printable(text, sys.stdout))
            sys.stdout.flush()
