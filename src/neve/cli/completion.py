"""`neve --install-completion`: teaches a shell to complete neve's commands and options.

    bash   <data>/bash-completion/completions/neve      <data> is $XDG_DATA_HOME or ~/.local/share
    fish   <config>/fish/completions/neve.fish          <config> is $XDG_CONFIG_HOME or ~/.config
    zsh    ~/.zfunc/_neve

Each shell loads the file by itself, zsh once its directory is on the search path. The script is
click's; it calls neve for the words.
"""

import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from neve.errors import InvalidArgument, Unavailable

_SHELLS: Final = ("bash", "zsh", "fish")
_FROM_ENVIRONMENT: Final = "detect"
_AFTERWARDS: Final = {
    "bash": "Open a new terminal to use it; it needs the package bash-completion",
    "fish": "Open a new terminal to use it",
    "zsh": "Add `fpath+=~/.zfunc; autoload -Uz compinit; compinit` to ~/.zshrc once, then open a "
    "new terminal",
}


def install_completion_option() -> click.Option:
    """Make the option; it does its work as soon as it is met, and ends the command."""
    return click.Option(
        ["--install-completion"],
        type=click.Choice([*_SHELLS, _FROM_ENVIRONMENT]),
        is_flag=False,
        flag_value=_FROM_ENVIRONMENT,
        is_eager=True,
        expose_value=False,
        metavar="[bash|zsh|fish]",
        callback=_install,
        help="Teach the shell to complete neve's commands; without a value, the shell in $SHELL.",
    )


def _install(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is None or ctx.resilient_parsing:
        return
    shell = _detected_shell() if value == _FROM_ENVIRONMENT else value
    completion = get_completion_class(shell)
    assert completion is not None, f"click completes {shell}"
    script = completion(ctx.command, {}, "neve", "_NEVE_COMPLETE").source()
    path = _script_path(shell)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        unfinished.write_text(script, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise Unavailable(
            f"could not write the completion script: {error.strerror}",
            path=str(path),
            hint="Make the directory writable, or say which shell: --install-completion bash",
        ) from error
    click.echo(f"wrote {path}")
    click.echo(_AFTERWARDS[shell])
    ctx.exit()


def _detected_shell() -> str:
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _SHELLS:
        raise InvalidArgument(
            f"the shell {shell!r} in $SHELL cannot complete neve"
            if shell
            else "$SHELL does not say which shell this is",
            hint="Say which: --install-completion bash, zsh or fish",
        )
    return shell


def _script_path(shell: str) -> Path:
    home = Path.home()
    match shell:
        case "bash":
            share = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
            return share / "bash-completion" / "completions" / "neve"
        case "fish":
            config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
            return config / "fish" / "completions" / "neve.fish"
        case _:
            return home / ".zfunc" / "_neve"
