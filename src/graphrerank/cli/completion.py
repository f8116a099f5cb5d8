"""``graphrerank completion bash``: scripts by which shells complete commands and settings."""

from graphrerank.checks import check_choice

COMMANDS = "train evaluate serve demo prepare index build doctor completion"
BASH = f"""_graphrerank() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}"
    if [ "$COMP_CWORD" -le 1 ]; then
        COMPREPLY=($(compgen -W "{COMMANDS}" -- "$word"))
        return
    fi
    case "$command" in
        train|evaluate|serve) ;; prepare|doctor) command=evaluate ;; demo) command=serve ;; *) return ;;
    esac
    local line="graphrerank" other
    for other in "${{COMP_WORDS[@]:2:$((COMP_CWORD-2))}}"; do case "$other" in *=*) line+=" $other" ;; esac; done
    line+=" $word"
    local ask="${{COMP_WORDS[0]}} $command -sc query=bash"
    local found="$(COMP_LINE="$line" COMP_POINT="${{#line}}" $ask 2>/dev/null)"
    COMPREPLY=($(compgen -W "$found" -- "$word"))
}}
COMP_WORDBREAKS="${{COMP_WORDBREAKS//=}}"
complete -o nospace -o default -F _graphrerank graphrerank
"""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n" + BASH
FISH = f"""function _graphrerank
    set -l words (commandline -cpo) (commandline -ct)
    set -lx COMP_LINE (string join ' ' -- graphrerank (string match -- '*=*' $words[3..-2]) $words[-1])
    set -l command (string replace -r '^(prepare|doctor)$' evaluate -- $words[2] | string replace -r '^demo$' serve)
    graphrerank $command -sc query=fish 2>/dev/null
end
complete -c graphrerank -f -n __fish_use_subcommand -a '{COMMANDS}'
complete -c graphrerank -f -n '__fish_seen_subcommand_from train evaluate serve demo prepare doctor' -a '(_graphrerank)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion_script(shell: str = "bash") -> str:
    """Return the script of a shell, to be read at its start: ``eval "$(graphrerank completion bash)"``.

    Raises:
        ValueError: If there is none for the shell.
    """
    check_choice(SCRIPTS, shell=shell)
    return SCRIPTS[shell]
