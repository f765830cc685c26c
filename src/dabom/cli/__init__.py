"""The commands. One file each, imported when its command is used: `dabom --help` needs none of them."""

from __future__ import annotations

from dabom.cli.lazy import build_group

__all__ = ["main"]

# name: (file, function or group, what `dabom --help` says of it)
_COMMANDS = {
    "serve": ("dabom.cli.serve", "serve_gateway", "게이트웨이를 띄웁니다. · Start the gateway."),
    "chat": (
        "dabom.cli.chat",
        "chat",
        "질문을 보내고 답을 오는 대로 출력합니다. · Ask; print the answer as it comes.",
    ),
    "tokens": (
        "dabom.cli.tokens",
        "tokens",
        "그림, 영상, 소리가 몇 토큰인지 셉니다. · Count what pictures, clips and sounds cost.",
    ),
    "clips": (
        "dabom.cli.clips",
        "clips",
        "녹화를 클립으로 자르고 하나씩 분석합니다. · Cut recordings into clips and analyse each.",
    ),
    "check": (
        "dabom.cli.check",
        "check",
        "설정을 점검하고 경로를 보입니다. · Check settings; show the routes of requests.",
    ),
    "demo": (
        "dabom.cli.demo",
        "demo",
        "샘플 영상으로 게이트웨이를 6단계로 점검합니다. · Check a gateway in six steps on the sample clips.",
    ),
    "keys": (
        "dabom.cli.keys",
        "keys",
        "클라이언트 키를 만들고 확인합니다. · Make and check keys of clients.",
    ),
    "audit": (
        "dabom.cli.audit",
        "audit",
        "감사 기록을 검증하고 내보냅니다. · Verify and export the audit records.",
    ),
}


def main() -> None:
    """Run the command line."""
    told = "다봄: 자체 하드웨어의 멀티모달 모델을 위한 게이트웨이 · a gateway for multimodal models"
    build_group(_COMMANDS, told)()
