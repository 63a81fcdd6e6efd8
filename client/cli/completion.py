"""Scripts with which bash, zsh and fish complete verbs, flags and the words of flags.

A script is made from the parsers, so that a verb needs nothing for its completion. A script holds
all words itself: completing a word starts no program.
"""

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from .parser import Parser
from .words import SWITCHES, VALUE_FLAGS

SHELLS: Final = ("bash", "zsh", "fish")


class Flag(NamedTuple):
    """A flag with its spellings, or without any an argument. `words`: what may follow."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    words: tuple[str, ...]


Table = Mapping[str, list[Flag]]
"""The flags of each verb; "" has those of a node, which has no verb."""


def flags(parser: Parser) -> list[Flag]:
    """Return the flags of a parser, and the arguments that are one of some words."""
    return [
        Flag(
            tuple(action.option_strings), " ".join((action.help or "").split()),
            action.nargs != 0,
            tuple(map(str, action.choices or ())),
        )
        for action in parser._actions
        if action.option_strings or action.choices
    ]  # fmt: skip


_FIND_VERB: Final = f"""        if [[ -n $skip ]]; then skip=""; continue; fi
        case "$word" in
            {"|".join(VALUE_FLAGS)}) skip=1 ;;
            -*) ;;
            *) if [[ -z $first ]]; then first=$word; elif [[ -z $second ]]; then second=$word; fi ;;
        esac
    done"""
"""The loop of bash and zsh over the words before the cursor: `first` and `second` are the verb."""


def script(shell: str, table: Table) -> str:
    """Return the script for one of SHELLS."""
    makers: dict[str, Callable[[Table], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return makers[shell](table)


def _bash(table: Table) -> str:
    return f"""# bash completion for lognode; made by `lognode completion bash`
_lognode() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
    local first="" second="" skip="" word words=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
{_FIND_VERB}
{_cases(table)}
    COMPREPLY=()
    if [[ $words != FILES ]]; then COMPREPLY=($(compgen -W "$words" -- "$cur")); fi
}}
complete -o default -F _lognode lognode
"""


def _zsh(table: Table) -> str:
    return f"""#compdef lognode
# zsh completion for lognode; made by `lognode completion zsh`
_lognode() {{
    local cur="${{words[CURRENT]}}" prev="${{words[CURRENT-1]}}"
    local first="" second="" skip="" word found=""
    for word in "${{(@)words[2,CURRENT-1]}}"; do
{_FIND_VERB}
{_cases(table).replace("words=", "found=")}
    if [[ $found == FILES ]]; then _files; else compadd -- ${{=found}}; fi
}}
if [[ $funcstack[1] == _lognode ]]; then _lognode "$@"; else compdef _lognode lognode; fi
"""


def _cases(table: Table) -> str:
    """Return the statements that bash and zsh share: they set `words` to what may come next, or
    to FILES where a file or any other word may come."""
    lines = ['    case "$first $second" in']
    for verb in filter(None, table):
        pattern = shlex.quote(verb if " " in verb else f"{verb} ")
        lines.append(f"        {pattern}*) words={shlex.quote(_names(table[verb]))}")
        lines += _values(table[verb])
    for word, seconds in _pairs(table).items():
        lines.append(
            f"        {shlex.quote(word + ' ')}) words={shlex.quote(' '.join(seconds))} ;;"
        )
    common = [Flag((name,), "", True, ()) for name in VALUE_FLAGS]
    of_node = [*table[""], *common, Flag(tuple(SWITCHES), "", False, ())]
    firsts = " ".join(_firsts(table))
    lines.append(f"        ' ') words={shlex.quote(f'{firsts} {_names(of_node)}')}")
    lines += _values(of_node, takes_words=False)
    return "\n".join([*lines, "    esac"])


def _values(given: list[Flag], *, takes_words: bool = True) -> list[str]:
    """Return the statements for the word behind a flag with a value, or for any other word."""
    lines = ['            case "$prev" in']
    for flag in given:
        if flag.names and flag.takes_value:
            words = shlex.quote(" ".join(flag.words) or "FILES")
            lines.append(f"                {'|'.join(flag.names)}) words={words} ;;")
    if takes_words:
        argument = next((" ".join(flag.words) for flag in given if not flag.names), "FILES")
        words = shlex.quote(argument)
        lines.append(f"                *) [[ $cur == -* ]] || words={words} ;;")
    return [*lines, "            esac ;;"]


def _firsts(table: Table) -> list[str]:
    return sorted({verb.split()[0] for verb in table if verb})


def _pairs(table: Table) -> dict[str, list[str]]:
    """Return the second words of each first word."""
    found: dict[str, list[str]] = {}
    for verb in table:
        if " " in verb:
            first, second = verb.split()
            found.setdefault(first, []).append(second)
    return found


def _names(given: Iterable[Flag]) -> str:
    return " ".join(dict.fromkeys(name for flag in given for name in flag.names))


_FISH_WORDS: Final = f"""function __lognode_words
    set -l skip
    for word in (commandline -opc)[2..-1]
        if test -n "$skip"
            set skip
            continue
        end
        switch $word
            case {" ".join(VALUE_FLAGS)}
                set skip 1
            case '-*'
            case '*'
                echo $word
        end
    end
end
function __lognode_is
    set -l words (__lognode_words)
    test "$words[1..$(count $argv)]" = "$argv"
end
function __lognode_is_only
    test "$(__lognode_words)" = "$argv"
end"""
"""`__lognode_is VERB` says whether the words before the cursor begin with the verb, and
`__lognode_is_only` whether nothing follows the verb."""


def _fish(table: Table) -> str:
    lines = [
        "# fish completion for lognode; made by `lognode completion fish`",
        _FISH_WORDS,
        f"complete -c lognode -n __lognode_is_only -f -a '{' '.join(_firsts(table))}'",
    ]
    for first, seconds in _pairs(table).items():
        lines.append(
            f"complete -c lognode -n '__lognode_is_only {first}' -f -a '{' '.join(seconds)}'"
        )
    common = [Flag((name,), "", True, ()) for name in VALUE_FLAGS]
    for verb, given in {**table, "": [*table[""], *common]}.items():
        condition = f"__lognode_is {verb}" if verb else "__lognode_is_only"
        for flag in given:
            lines.append(f"complete -c lognode -n '{condition}' {_fish_flag(flag)}")
    return "\n".join(lines) + "\n"


def _fish_flag(flag: Flag) -> str:
    parts = [
        f"-l {name.removeprefix('--')}" if name.startswith("--") else f"-s {name.removeprefix('-')}"
        for name in flag.names
    ]
    if flag.names and flag.takes_value:
        parts.append("-r")
    if flag.words:
        parts.append(f"-f -a '{' '.join(flag.words)}'")
    told = flag.help.replace("\\", "\\\\").replace("'", "\\'")
    return " ".join([*parts, f"-d '{told}'"])
