from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from dabom.families import FAMILIES, read_files

if TYPE_CHECKING:
    from pathlib import Path

_SHIPPED: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "qwen2-vl": ({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}, None),
    "qwen2.5-vl": ({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}, None),
    "qwen2.5-omni": ({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "merge_size": 2}, None),
    "qwen3-omni": ({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 16, "merge_size": 2}, None),
    "qwen3-vl": (
        {"size": {"longest_edge": 16777216, "shortest_edge": 65536}, "patch_size": 16, "merge_size": 2},
        {"size": {"longest_edge": 25165824, "shortest_edge": 4096}, "patch_size": 16, "merge_size": 2},
    ),
}


def _write(folder: Path, **files: Any) -> None:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_the_shipped_files_say_what_the_table_of_families_says(name: str, tmp_path: Path) -> None:
    image, video = _SHIPPED[name]
    _write(tmp_path, preprocessor_config=image, **({"video_preprocessor_config": video} if video else {}))
    assert FAMILIES[name].with_files(*read_files(tmp_path)) == FAMILIES[name]


def test_a_checkpoint_has_its_own_limits(tmp_path: Path) -> None:
    _write(
        tmp_path,
        preprocessor_config={"size": {"longest_edge": 262_144, "shortest_edge": 4096}},
        video_preprocessor_config={
            "size": {"longest_edge": 1_048_576, "shortest_edge": 4096},
            "fps": 1,
            "max_frames": 32,
        },
    )
    family = FAMILIES["qwen3-vl"].with_files(*read_files(tmp_path))
    assert family.limits.image == (4096, 262_144)
    assert family.limits.video == (4096, 1_048_576)
    assert family.limits.again == (1.0, 4, 32)


def test_an_omni_clip_takes_the_files_limits_for_the_edge_that_a_request_leaves_out() -> None:
    family = FAMILIES["qwen3-omni"].with_files({"min_pixels": 10, "max_pixels": 20})
    assert (family.limits.video, family.limits.video_asked) == ((131_072, 786_432), (10, 20))


def test_one_file_may_hold_both(tmp_path: Path) -> None:
    both = {"image_processor": {"min_pixels": 1}, "video_processor": {"min_pixels": 2}}
    _write(tmp_path, processor_config=both, preprocessor_config={"min_pixels": 3})
    assert read_files(tmp_path) == ({"min_pixels": 1}, {"min_pixels": 2})


def test_a_folder_without_files_a_broken_file_and_a_wrong_number(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"no preprocessor_config\.json"):
        read_files(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        read_files(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text("[1]")
    with pytest.raises(ValueError, match="no JSON object"):
        read_files(tmp_path)
    with pytest.raises(ValueError, match=r"patch_size is 'x'"):
        FAMILIES["qwen3-vl"].with_files({"patch_size": "x"})
