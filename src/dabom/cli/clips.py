"""`dabom clips`: cut a recording into clips, make controls, ask about every clip, report.

Each command has a file of its own, `clips_*.py`, and is imported when it is used.
"""

from __future__ import annotations

from dabom.cli.lazy import build_group

# name: (file, function, what `dabom clips --help` says of it)
_COMMANDS = {
    "cut": (
        "dabom.cli.clips_cut",
        "cut",
        "녹화를 같은 길이의 클립으로 자릅니다. · Cut a recording into clips of one length.",
    ),
    "control": (
        "dabom.cli.clips_control",
        "control",
        "화면이나 소리를 뺀 대조 클립을 만듭니다. · Make clips with one modality removed.",
    ),
    "run": (
        "dabom.cli.clips_run",
        "run",
        "폴더의 클립마다 모델에 묻고 답을 저장합니다. · Ask about every clip; keep the answers.",
    ),
    "table": (
        "dabom.cli.clips_table",
        "table",
        "클립 폴더를 표로 보입니다. · Show folders of clips as a table.",
    ),
    "report": (
        "dabom.cli.clips_report",
        "show_report",
        "실행의 결과를 요약합니다. · Say what a run adds up to.",
    ),
    "runs": (
        "dabom.cli.clips_keep",
        "list_runs",
        "저장된 실행을 보입니다. · Show the runs that are kept.",
    ),
    "export": (
        "dabom.cli.clips_keep",
        "export",
        "실행의 결과를 표로 내보냅니다. · Write the results as a table.",
    ),
    "purge": (
        "dabom.cli.clips_keep",
        "purge_runs",
        "오래된 실행의 클립과 결과를 지우고 감사 기록을 남깁니다. · Remove old runs; audit it.",
    ),
}


clips = build_group(
    _COMMANDS, "녹화를 클립으로 자르고 하나씩 분석합니다. · Cut recordings into clips and analyse each."
)
