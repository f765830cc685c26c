"""Where vLLM cannot be had, the reason is said. Needs no vLLM, so `make test` runs it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

INSTALL = Path(__file__).parents[2] / "script" / "conformance" / "install_vllm.sh"


def install(tmp_path: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run the script with these programs and a few harmless ones on PATH, and nothing else."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "rm", "mkdir", "mktemp"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    for name, body in programs.items():
        program = tools / name.replace("_", ".")
        program.write_text(f"#!{tools / 'bash'}\n{body}\n")
        program.chmod(0o755)
    return subprocess.run(
        [tools / "bash", INSTALL, tmp_path / "vllm"],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_another_machine(tmp_path: Path) -> None:
    done = install(tmp_path, uname="echo Darwin arm64")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "vLLM's CPU wheel is for Linux on x86-64; this is Darwin arm64"


def test_no_python_3_11(tmp_path: Path) -> None:
    done = install(tmp_path, uname="echo Linux x86_64")
    assert done.returncode == 1
    assert "Python 3.11, which is not on PATH" in done.stdout


def test_no_wheel(tmp_path: Path) -> None:
    """An interpreter whose pip finds nothing."""
    interpreter = "\n".join(
        [
            'if [ "$2" = venv ]; then mkdir -p "$3/bin"',
            'printf \'#!%s\\nexit 1\\n\' "$BASH" > "$3/bin/python"; chmod +x "$3/bin/python"; fi',
        ]
    )
    chmod = shutil.which("chmod")
    done = install(tmp_path, uname="echo Linux x86_64", python3_11=interpreter, chmod=f'exec {chmod} "$@"')
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("pip finds no torch==")
    assert not (tmp_path / "vllm" / ".installed-0.32.0").exists()
