"""Which classes the installed transformers has and which of them are copies of each other, read from source text alone.

Nothing here imports transformers. Two classes count as copies when their code is equal after names of the module's own
classes and functions are replaced by the code they stand for, and annotations, decorators, docstrings and messages are gone.
"""

import ast
import hashlib
import importlib.util
from pathlib import Path
from typing import Any

from cuda_agent.errors import ProblemError

PACKAGE = "transformers"
# What is crawled by default, known families first: a seed is named after the first that has its code.
_KNOWN = """
activations llama bert t5 gpt2 mistral mixtral qwen2 gemma bart vit clip deepseek_v3 mamba swin qwen3 qwen2_moe
qwen3_moe qwen3_next gemma2 gemma3 phi phi3 phimoe gpt_neox gptj gpt_neo gpt_oss opt bloom falcon mpt mbart pegasus
albert electra deberta deberta_v2 distilbert xlnet funnel big_bird mpnet modernbert roformer squeezebert convbert fnet
nystromformer deepseek_v2 olmo olmo2 olmoe cohere cohere2 granite granitemoe dbrx jamba mamba2 falcon_mamba bamba rwkv
recurrent_gemma stablelm starcoder2 persimmon nemotron glm glm4 glm4_moe llama4 minimax jetmoe diffllama
switch_transformers xglm codegen ctrl mobilebert rembert ernie luke canine longt5 umt5 reformer led deit beit swinv2
convnext convnextv2 siglip dinov2 dinov3_vit sam segformer pvt poolformer mobilevit mobilenet_v2 resnet regnet
efficientnet levit cvt focalnet dpt detr vit_mae hiera vivit timesformer videomae bit glpn groupvit wav2vec2 hubert
wavlm whisper speech_to_text encodec mimi dac seamless_m4t clap speecht5 wav2vec2_bert moonshine blip blip_2 idefics
idefics2 qwen2_vl qwen2_5_vl mllama flava bridgetower perceiver chameleon pix2struct patchtst patchtsmixer informer
autoformer esm zamba zamba2 ibert yoso mra splinter lxmert visual_bert vilt
"""
FAMILIES = tuple(_KNOWN.split())


def modules() -> list[str]:
    """Dotted names of the modules that hold layers: `transformers.activations` and each `modeling_*`, known families first.

    Raises:
        ProblemError: transformers is not installed.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ProblemError("transformers is not installed, so there is nothing to crawl; install it (pip install transformers)")
    root = Path(found.submodule_search_locations[0])
    paths = sorted((root / "models").glob("*/modeling_*.py"), key=_rank)
    names = [f"{PACKAGE}.models.{path.parent.name}.{path.stem}" for path in paths]
    return [f"{PACKAGE}.activations", *(name for name in names if "modeling_tf_" not in name and "modeling_flax_" not in name)]


def family(name: str) -> str:
    """The model family of a dotted name of a class or module: `llama`, or `activations`."""
    parts = name.split(".")
    return parts[2] if parts[1] == "models" else parts[1]


def digests(text: str) -> dict[str, str]:
    """A digest of the code of each top-level class of a module, equal for copies; see the module's contract."""
    tree = ast.parse(text)
    known = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    done: dict[str, str] = {}
    for name in known:
        _digest(name, known, done)
    return {name: done[name] for name, node in known.items() if isinstance(node, ast.ClassDef)}


def _rank(path: Path) -> tuple[int, str, str]:
    name = path.parent.name
    return (FAMILIES.index(name) if name in FAMILIES else len(FAMILIES), name, path.name)


def _digest(name: str, known: dict[str, Any], done: dict[str, str]) -> str:
    if name not in done:
        done[name] = "itself"  # what refers back to it, or to what is being read, needs no own digest
        plain = _Plain({other: lambda other=other: _digest(other, known, done) for other in known}).visit(known[name])
        done[name] = hashlib.sha256(ast.dump(plain).encode()).hexdigest()[:20]
    return done[name]


class _Plain(ast.NodeTransformer):
    """Reduces a class or function to its code; works on the tree in place, each top-level node once."""

    def __init__(self, digests: dict[str, Any]) -> None:
        self._digests = digests

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name, node.decorator_list = "C", []
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        kept = [item for item in node.decorator_list if isinstance(item, ast.Name) and item.id in ("property", "staticmethod")]
        node.decorator_list, node.returns = list(kept), None
        node.body = _without_docstring(node.body)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.generic_visit(ast.Assign(targets=[node.target], value=node.value, type_comment=None))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._digests:
            node.id = self._digests[node.id]()
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and " " in node.value:  # a message, which names the family
            node.value = ""
        return node


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:] or [ast.Pass()]
    return body
