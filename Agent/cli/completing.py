r"""Completion in a shell, where a keyword's name is data from a stranger: nothing in it may become a command.

What zsh and fish are offered they quote themselves as they put it on the line. bash takes it as it is, so here a
name is quoted for it, and click's script, which would eat the quoting, is replaced.

>>> quote("green tea; $(rm -r ~)")
'green\\ tea\\;\\ \\$\\(rm\\ -r\\ \\~\\)'
"""

import os
import re

from click.shell_completion import BashComplete, CompletionItem, FishComplete, add_completion_class
from typing_extensions import override

__all__ = ["quote"]

_BASH = r"""%(complete_func)s() {
    local response type value
    response=$(
        IFS=$'\n'
        env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" %(complete_var)s=bash_complete "$1"
    )
    while IFS=, read -r type value; do
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done <<< "$response"
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


def quote(word: str, opened: str = "") -> str:
    """Return a word as bash reads it back, after a quote that was opened.

    Args:
        word: without line ends.
        opened: `"'"`, `'"'` or nothing.

    Returns:
        The word; empty where it cannot follow this quote.
    """
    if opened:
        return "" if opened in word or (opened == '"' and re.search(r"[$`\\!]", word)) else word
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", word)


class _Bash(BashComplete):
    source_template = _BASH

    @override
    def complete(self) -> str:
        """Return what is offered, each on a line of its own."""
        words = os.environ["COMP_WORDS"].split("\n")
        place = int(os.environ["COMP_CWORD"])
        begun = words[place] if place < len(words) else ""
        self._opened = begun[:1] if begun[:1] in ("'", '"') else ""
        return super().complete()

    @override
    def format_completion(self, item: "CompletionItem[str]") -> str:
        """Return one offer, with its kind; a path is completed by bash itself."""
        word = quote(item.value, self._opened)
        return f"{item.type},{word}" if word or item.type != "plain" else ""


class _Fish(FishComplete):
    # A name may hold commas.
    source_template = FishComplete.source_template.replace('string split "," ', 'string split --max 1 "," ')


add_completion_class(_Bash)
add_completion_class(_Fish)
