"""`--install-completion` writes one script where the shell looks for it."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from neve.cli.main import cli


def install(home: Path, *args: str, **environment: str) -> Result:
    env: dict[str, str | None] = {
        "HOME": str(home),
        "SHELL": None,
        "XDG_DATA_HOME": None,
        "XDG_CONFIG_HOME": None,
    }
    return CliRunner().invoke(cli, ["--install-completion", *args], env=env | environment)


def test_an_unknown_shell_is_refused_with_the_choices(tmp_path: Path) -> None:
    result = install(tmp_path, SHELL="/bin/tcsh")

    assert result.exit_code == 2
    assert "'tcsh'" in result.stderr
    assert "bash, zsh or fish" in result.stderr


def test_without_a_shell_in_the_environment_it_must_be_said(tmp_path: Path) -> None:
    result = install(tmp_path)

    assert result.exit_code == 2
    assert "$SHELL does not name a shell" in result.stderr


def test_a_home_that_cannot_be_written_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / ".zfunc").write_text("a file in the way")

    result = install(tmp_path, "zsh")

    assert result.exit_code == 3
    assert result.stderr.startswith("neve: could not write the completion script")


@pytest.mark.parametrize(
    ("shell", "path"),
    [
        ("bash", ".local/share/bash-completion/completions/neve"),
        ("zsh", ".zfunc/_neve"),
        ("fish", ".config/fish/completions/neve.fish"),
    ],
)
def test_the_script_goes_where_the_shell_looks(tmp_path: Path, shell: str, path: str) -> None:
    result = install(tmp_path, SHELL=f"/usr/bin/{shell}")

    assert result.exit_code == 0
    assert f"wrote {tmp_path / path}" in result.stdout
    assert f"_NEVE_COMPLETE={shell}_complete" in (tmp_path / path).read_text()
    assert [each.name for each in (tmp_path / path).parent.iterdir()] == [(tmp_path / path).name]


def test_directories_of_the_desktop_standard_are_followed(tmp_path: Path) -> None:
    result = install(tmp_path, "fish", XDG_CONFIG_HOME=str(tmp_path / "elsewhere"))

    assert result.exit_code == 0
    assert (tmp_path / "elsewhere" / "fish" / "completions" / "neve.fish").exists()
