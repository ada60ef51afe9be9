"""Shell completion: the scripts that the command prints complete its verbs and options."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.cli import main

ROOT = Path(__file__).parent.parent.parent


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["--tyro-print-completion", shell])
    assert not stop.value.code
    return capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [(["ba"], {"batch"}), (["con"], {"convert"}), (["batch", "--mot"], {"--motion"}), (["doctor", "--js"], {"--json"})],
)
def test_bash_completes_verbs_and_options(tmp_path: Path, capsys, words: list[str], wanted: set[str]) -> None:
    path = tmp_path / "splatanim.bash"
    path.write_text(script("bash", capsys))
    line = " ".join(["splatanim", *words])
    code = f"""
        source {path}
        complete -p splatanim >/dev/null || exit 3
        COMP_WORDS=({line}); COMP_CWORD={len(words)}; COMP_LINE="{line}"; COMP_POINT={len(line)}
        $(complete -p splatanim | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    run = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert wanted <= set(run.stdout.split())


def test_zsh_gets_a_script_of_its_own(tmp_path: Path, capsys) -> None:
    text = script("zsh", capsys)
    assert text.startswith("#compdef splatanim") and "batch" in text and "--motion" in text
    if shutil.which("zsh"):
        path = tmp_path / "_splatanim"
        path.write_text(text)
        assert subprocess.run(["zsh", "-n", str(path)]).returncode == 0


def test_every_verb_has_help_of_its_own() -> None:
    code = "import sys; from pipelines.cli import main; sys.exit(main(sys.argv[1:]))"
    run = subprocess.run([sys.executable, "-c", code, "batch", "--help"], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0 and "contact_sheet.png" in run.stdout
