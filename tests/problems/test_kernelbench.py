from pathlib import Path

import pytest

from cuda_agent.errors import ProblemError
from cuda_agent.problems.kernelbench import import_kernelbench, is_checkout, read_checkout
from tests.problems.texts import text


def checkout(root: Path, inner: str = "KernelBench") -> Path:
    files = {
        "level1/10_Softmax.py": text("x = torch.softmax(x, dim=-1)"),
        "level1/2_Scale.py": text("x = x * 3.0"),
        "level1/notes.txt": "no problem",
        "level2/1_Relu_Sum.py": text("x = F.relu(x)\nx = torch.sum(x, dim=1)", head="import torch.nn.functional as F"),
        "changelog/readme.md": "",
    }
    for name, content in files.items():
        path = root / inner / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize("inner", ["KernelBench", "."])
def test_a_checkout_imports_by_level_and_number(tmp_path: Path, inner: str) -> None:
    problems = import_kernelbench(checkout(tmp_path, inner), [2, 1])
    assert [problem.data_source for problem in problems] == ["kernelbench#1", "kernelbench#1", "kernelbench#2"]
    assert [problem.ops for problem in problems] == [("torch.mul",), ("torch.softmax",), ("nn.functional.relu", "torch.sum")]
    assert problems[0].code == text("x = x * 3.0")
    assert [entry.name for entry in read_checkout(tmp_path, [1])] == ["level1/2_Scale", "level1/10_Softmax"]
    assert is_checkout(tmp_path)


def test_line_ends_stay_as_they_are(tmp_path: Path) -> None:
    path = checkout(tmp_path) / "KernelBench/level1/2_Scale.py"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert import_kernelbench(tmp_path, [1])[0].code.count("\r\n") > 5


def test_what_is_no_checkout_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="is no folder"):
        import_kernelbench(tmp_path / "missing", [1])
    with pytest.raises(ProblemError, match="no KernelBench, or another version"):
        import_kernelbench(tmp_path, [1])
    checkout(tmp_path)
    with pytest.raises(ProblemError, match="no level3; name one of 1, 2"):
        import_kernelbench(tmp_path, [1, 3])
    with pytest.raises(ProblemError, match="no level of"):
        import_kernelbench(tmp_path, [])


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("1_Old.py", b"import torch\nclass Net(torch.nn.Module): pass\n", "1_Old.py: .*no class Model"),
        ("1_Torn.py", b"class Model(:", "1_Torn.py: .*not Python"),
        ("1_Bytes.py", b"# \xff\xfe", "1_Bytes.py: not UTF-8"),
        ("1_Long.py", b"#" * 200_001, "1_Long.py: .*200001 characters"),
    ],
)
def test_a_file_of_another_version_is_named(tmp_path: Path, name: str, content: bytes, fault: str) -> None:
    (checkout(tmp_path) / "KernelBench" / "level1" / name).write_bytes(content)
    with pytest.raises(ProblemError, match=fault):
        import_kernelbench(tmp_path, [1])


def test_a_level_without_numbered_files_is_another_version(tmp_path: Path) -> None:
    folder = tmp_path / "level1"
    folder.mkdir()
    (folder / "relu.json").write_text("{}")
    with pytest.raises(ProblemError, match="holds no files such as"):
        import_kernelbench(tmp_path, [1])
