"""How an operator of torch might be called: templates to try, guessed from parameters' names or written down.

Pure text, without torch: what runs of it is found out in a sandboxed child (`torch_crawl_child`). Further inputs keep the scale
of values (products of matrices divide by the root of what they add up), so that chains stay tame.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Literal

from cuda_agent.problems.seeds import Template

Kind = Literal["tensor", "tensors", "int", "float", "bool", "other"]
MOST = 16  # combinations of guesses tried for one signature

# What a crawl leaves alone, by name: they change the process, draw numbers, or belong to another trade than arithmetic.
EXCLUDED = (
    (r"_$|^_|^__", "private or in place"),
    (r"rand|dropout|bernoulli|multinomial|poisson$|^normal$|gumbel|fractional_max|FractionalMax|Dropout|^rrelu|RReLU", "random"),
    (r"quant|qparams|^q_|^int_repr|fbgemm|per_channel|^QFunctional", "quantized"),
    (r"sparse|to_mkldnn|^crow_|^col_indices|^ccol|^row_indices|^coalesce|^hspmm|^sspaddmm|^smm$", "sparse"),
    (
        r"^(set|use|save|load|compile|export|manual|seed|initial|import|init|from|share|register|get|is|can|clear)(_|$)",
        "no arithmetic",
    ),
    (
        r"backward|autograd|autocast|batch_norm_(stats|elemt|gather|update)|(^|_)grad($|_)|no_grad|enable_grad|inference|vmap|^func|^retain|^hook|requires",
        "gradients",
    ),
    (
        r"^(cuda|cpu|xpu|mtia|ipu|hpu|mps|vulkan|cudnn|mkldnn|miopen|numpy|tolist|item|storage|untyped|data_ptr|element_size)",
        "no arithmetic",
    ),
    (
        r"^(empty|zeros|ones|full|arange|range|linspace|logspace|eye|tensor$|scalar_tensor|as_tensor|asarray|new_)",
        "makes a tensor of none",
    ),
    (
        r"^Lazy|DataParallel|^Module|^Parameter|^Container|^Sequential|^Buffer|^Uninitialized|SyncBatchNorm|has_torch_function",
        "no operator",
    ),
    (r"_with_indices$|^native_|^unsafe_|_copy$|_ex$|^norm_except|^constant_pad|^conv_tbc$|^saddmm$|^cfloat", "internal twin"),
    (r"^parse_|^merge_type|^unify_type|^lobpcg$|^diagflat$|^classprop|^thread_|^prepare_|^profiler|^boolean_disp", "no operator"),
    (r"^(RNN|LSTM|GRU)$", "unrolled step by step on the meta device, tens of seconds"),
    (r"^eig(vals)?$|^symeig$", "answers in no fixed order"),
    (
        r"^Embedding|^resize|^type|typename|^dtype|^result_type|^promote|^finfo|^iinfo|^set_|^fork$|^wait$|^assert|^sym_",
        "no operator",
    ),
)

# Of several names for one function, those that stand back.
SYNONYMS = (
    *("absolute", "adjoint", "swapaxes", "swapdims", "moveaxis", "fix", "greater", "greater_equal", "less", "less_equal"),
    *("arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "arccos", "arccosh", "dsmm", "spmm", "column_stack", "negative"),
    *("subtract", "multiply", "divide", "true_divide", "clip", "max", "min", "trapz", "dsplit", "hsplit"),
)
TWINS = {
    "torch.special.digamma": "torch.digamma",
    "torch.special.psi": "torch.digamma",
    "torch.special.gammaln": "torch.lgamma",
    "torch.special.gammainc": "torch.igamma",
    "torch.special.gammaincc": "torch.igammac",
    "torch.special.multigammaln": "torch.mvlgamma",
    "torch.special.polygamma": "torch.polygamma",
    "torch.special.round": "torch.round",
    "torch.special.modified_bessel_i0": "torch.i0",
    "torch.special.modified_bessel_i1": "torch.special.i1",
    "torch.inverse": "torch.linalg.inv",
    "torch.det": "torch.linalg.det",
    "torch.slogdet": "torch.linalg.slogdet",
    "torch.pinverse": "torch.linalg.pinv",
    "torch.cholesky": "torch.linalg.cholesky",
    "torch.matrix_exp": "torch.linalg.matrix_exp",
    "torch.matrix_power": "torch.linalg.matrix_power",
    "torch.qr": "torch.linalg.qr",
    "torch.svd": "torch.linalg.svd",
    "torch.chain_matmul": "torch.linalg.multi_dot",
    "torch.triangular_solve": "torch.linalg.solve_triangular",
    "torch.linalg.diagonal": "torch.diagonal",
    "torch.linalg.norm": "torch.linalg.matrix_norm",
    "torch.frobenius_norm": "torch.linalg.matrix_norm",
}

MATRIX = "torch.randn({last}, {last}) / {last} ** 0.5"
SAME = "torch.randn({shape})"
POSITIVE = "torch.rand({shape}) + 0.5"
MASK = "torch.rand({shape}) > 0.5"
INDEX = "torch.randint(0, {last}, ({shape}))"
TENSORS = (SAME, POSITIVE, MATRIX, "torch.randn({last})")

# Guesses for a tensor beside x, by the parameter's name.
TENSOR_VALUES: dict[str, tuple[str, ...]] = {
    "mask": (MASK,),
    "index": (INDEX,),
    "indices": (INDEX,),
    "mat2": (MATRIX,),
    "running_mean": ("torch.randn({s1})",),
    "running_var": ("torch.rand({s1}) + 0.5",),
    "var": (POSITIVE,),
    "tensor2": (SAME, POSITIVE),
    "weight": (MATRIX, "torch.rand({s1})", "torch.randn({last})", SAME),
    "vec": ("torch.randn({last})",),
    "n": (),
    "q": (POSITIVE,),
    "hx": (),
}

# Guesses for a number, by the parameter's name.
NUMBER_VALUES: dict[str, tuple[str, ...]] = {
    "dim": ("-1", "1", "0"),
    "dims": ("(-1,)", "-1", "(0, 1)"),
    "axis": ("-1",),
    "dim0": ("-2",),
    "dim1": ("-1",),
    "axis0": ("-2",),
    "axis1": ("-1",),
    "source": ("0",),
    "destination": ("-1",),
    "kernel_size": ("3", "2"),
    "num_features": ("{s1}",),
    "num_channels": ("{s1}",),
    "in_channels": ("{s1}",),
    "out_channels": ("{s1}",),
    "normalized_shape": ("{last}", "({last},)"),
    "in_features": ("{last}",),
    "out_features": ("{last}",),
    "input_size": ("{last}",),
    "hidden_size": ("{last}",),
    "embed_dim": ("{last}",),
    "d_model": ("{last}",),
    "nhead": ("4",),
    "num_heads": ("4",),
    "num_groups": ("4", "2"),
    "groups": ("2",),
    "upscale_factor": ("2",),
    "downscale_factor": ("2",),
    "scale_factor": ("2",),
    "output_size": ("4",),
    "size": ("5", "2"),
    "padding": ("1", "(1, 1)"),
    "pad": ("(1, 1)",),
    "norm_type": ("2",),
    "threshold": ("0.1",),
    "value": ("0.5",),
    "weight": ("0.3",),
    "min": ("-0.5",),
    "max": ("0.5",),
    "min_val": ("-0.8",),
    "max_val": ("1.2",),
    "exponent": ("2.0", "3"),
    "p": ("2",),
    "maxnorm": ("1.0",),
    "k": ("4",),
    "n": ("3", "2"),
    "shifts": ("1",),
    "repeats": ("2",),
    "split_size": ("{half}",),
    "split_size_or_sections": ("2",),
    "chunks": ("2",),
    "sections": ("2",),
    "indices_or_sections": ("2",),
    "start": ("1",),
    "length": ("{half}",),
    "index": ("1",),
    "step": ("2", "1"),
    "other": ("0.7",),
    "q": ("0.3",),
    "decimals": ("1",),
}
FALLBACK: dict[Kind, tuple[str, ...]] = {"int": ("2", "1"), "float": ("0.5",), "bool": ("True",)}
# Given though they have a default.
WANTED = {
    "dim": NUMBER_VALUES["dim"],
    "reduction": ('"none"',),
    "track_running_stats": ("False",),
    "scale_factor": ("2",),
}
# Where x is not finite, or noise, as it is: its place is taken by one of these, all of them live for negative x too.
DOMAINS = ("torch.abs({x}) + 0.1", "torch.sin({x}) * 0.9", "torch.sin({x}) * 0.4 + 0.5", "torch.abs({x}) + 1.0")


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operator, as far as guessing needs it."""

    name: str
    kind: Kind
    required: bool = True
    keyword: bool = False


def excluded(name: str) -> str | None:
    """Why an operator of this bare name is not tried, or None."""
    return next((reason for pattern, reason in EXCLUDED if re.search(pattern, name)), None)


def likely_ranks(name: str) -> tuple[int, ...]:
    """Ranks of x worth trying: one where the name tells the spatial dimensions, as `conv2d` does."""
    told = re.search(r"([123])d(_|$|s$|Cell)?", name)
    if told and not re.match(r"(atleast|fft|ifft)", name):
        return (int(told.group(1)) + 2,)
    return (2, 3, 4)


def function_templates(name: str, signature: Sequence[Parameter], *, method: bool = False) -> Iterator[Template]:
    """Ways to call a function (or method) whose first tensor is x; ranks are left to whoever tries."""
    places = [place for place, parameter in enumerate(signature) if parameter.kind in ("tensor", "tensors")]
    if not places:
        return
    first = places[0]
    parameters = [replace(p, required=True) if p.name in WANTED else p for p in signature]
    for chosen in (parameters, list(signature)) if parameters != list(signature) else (parameters,):
        for texts, extras in _arguments(chosen, first):
            if method:
                own = texts.pop(first)
                yield Template((), f"{own}.{name}({', '.join(texts)})", "", tuple(extras))
            else:
                yield Template((), f"{name}({', '.join(texts)})", "", tuple(extras))


def module_templates(name: str, init: Sequence[Parameter], forward: Sequence[Parameter]) -> Iterator[Template]:
    """Ways to build a module and to call it on x."""
    wanted = [replace(p, required=True) if p.name in WANTED else p for p in init]
    for chosen in (wanted, list(init)) if wanted != list(init) else (wanted,):
        for texts, extras in _arguments(chosen, None):
            if extras:
                return
            for values, inputs in _arguments(forward, 0):
                yield Template((), "{m}(" + ", ".join(values) + ")", f"{name}({', '.join(texts)})", tuple(inputs))


def in_domain(template: Template) -> Iterator[Template]:
    """The template with x brought into narrower domains, one after another."""
    for domain in DOMAINS:
        own = f"({domain})" if template.expression.startswith("{x}") else domain
        yield replace(template, expression=template.expression.replace("{x}", own, 1))


def _arguments(signature: Sequence[Parameter], x: int | None) -> Iterator[tuple[list[str], list[str]]]:
    """Texts of the arguments, and what draws the tensors among them beside x."""
    used = [(place, parameter) for place, parameter in enumerate(signature) if parameter.required or place == x]
    last_tensor = max((number for number, (_, p) in enumerate(used) if p.kind in ("tensor", "tensors")), default=-1)
    choices = [("",) if place == x else _choices(parameter) for place, parameter in used]
    for values in islice(product(*choices), MOST):
        texts: list[str] = []
        extras: list[str] = []
        for number, ((place, parameter), value) in enumerate(zip(used, values, strict=True)):
            text = value
            if place == x or parameter.kind in ("tensor", "tensors"):
                text = "{x}" if place == x else "{y" + str(len(extras)) + "}"
                if place != x:
                    extras.append(value)
                if parameter.kind == "tensors":
                    text = f"[{text}]"
            if parameter.keyword or number > last_tensor:
                text = f"{parameter.name}={text}"
            texts.append(text)
        yield texts, extras


def _choices(parameter: Parameter) -> tuple[str, ...]:
    if parameter.kind in ("tensor", "tensors"):
        return TENSOR_VALUES.get(parameter.name, TENSORS)
    known = NUMBER_VALUES.get(parameter.name) or WANTED.get(parameter.name)
    return known or FALLBACK.get(parameter.kind, ())


def written(name: str) -> tuple[Template, ...]:
    """Templates written down for an operator that guessing does not reach; empty for the others."""
    return WRITTEN.get(name, ())


def _way(expression: str, *extras: str, ranks: tuple[int, ...] = (2, 3, 4), module: str = "", square: bool = False) -> Template:
    return Template(ranks, expression, module, extras, square)


def _square(expression: str, *extras: str) -> Template:
    return _way(expression, *extras, ranks=(2, 3), square=True)


SPD = "{x} @ {x}.mT / {last} + torch.eye({last}, device={x}.device)"  # symmetric, eigenvalues of 1 and more
DOMINANT = "{x} / {last} ** 0.5 + 3.0 * torch.eye({last}, device={x}.device)"  # well invertible
_LAYER = "({last}, 4, dim_feedforward={double}, batch_first=True)"
_ROW_INDEX = "torch.randint(0, {last}, ({last},))"
_CLASSES = "torch.randint(0, {last}, ({s0},))"
_SIGNS = "torch.randint(0, 2, ({shape})) * 2.0 - 1.0"
_BATCHED = "torch.randn({batch}{last}, {last}) / {last} ** 0.5"


def _convolutions() -> dict[str, tuple[Template, ...]]:
    made: dict[str, tuple[Template, ...]] = {}
    for spatial in (1, 2, 3):
        ones = ", ".join("3" * spatial)
        weight = f"torch.randn({{s1}}, {{s1}}, {ones}) / ({3**spatial} * {{s1}}) ** 0.5"
        for stem in ("conv", "conv_transpose"):
            name = f"nn.functional.{stem}{spatial}d"
            made[name] = (_way(name + "({x}, {y0}, padding=1)", weight, ranks=(spatial + 2,)),)
        for stem in ("Conv", "ConvTranspose"):
            name = f"nn.{stem}{spatial}d"
            text = name + "({s1}, {s1}, kernel_size=3, padding=1)"
            made[name] = (_way("{m}({x})", module=text, ranks=(spatial + 2,)),)
    return made


def _max_pools() -> dict[str, tuple[Template, ...]]:
    made: dict[str, tuple[Template, ...]] = {}
    for spatial in (1, 2, 3):
        for text in (f"max_pool{spatial}d({{x}}, kernel_size=3, stride=2)", f"adaptive_max_pool{spatial}d({{x}}, output_size=4)"):
            name = "nn.functional." + text.partition("(")[0]
            made[name] = (_way(f"nn.functional.{text}", ranks=(spatial + 2,)),)
    return made


WRITTEN: dict[str, tuple[Template, ...]] = {
    **_convolutions(),
    **_max_pools(),
    "torch.max": (_way("torch.max({x}, dim=-1)[0]"),),
    "torch.min": (_way("torch.min({x}, dim=-1)[0]"),),
    # Products.
    "torch.matmul": (_way("torch.matmul({x}, {y0})", MATRIX),),
    "torch.bmm": (_way("torch.bmm({x}, {y0})", _BATCHED, ranks=(3,)),),
    "torch.addmm": (_way("torch.addmm({y0}, {x}, {y1})", "torch.randn({last})", MATRIX, ranks=(2,)),),
    "torch.baddbmm": (_way("torch.baddbmm({y0}, {x}, {y1})", SAME, _BATCHED, ranks=(3,)),),
    "torch.addbmm": (_way("torch.addbmm({y0}, {x}, {y1})", "torch.randn({prev}, {last})", _BATCHED, ranks=(3,)),),
    "torch.mv": (_way("torch.mv({x}, {y0})", "torch.randn({last})", ranks=(2,)),),
    "torch.addmv": (_way("torch.addmv({y0}, {x}, {y1})", "torch.randn({prev})", "torch.randn({last})", ranks=(2,)),),
    "torch.addr": (_way("torch.addr({x}, {y0}, {y1})", "torch.randn({prev})", "torch.randn({last})", ranks=(2,)),),
    "torch.inner": (_way("torch.inner({x}, {y0})", MATRIX),),
    "torch.tensordot": (_way("torch.tensordot({x}, {y0}, dims=1)", MATRIX),),
    "torch.einsum": (
        _way('torch.einsum("ij,jk->ik", {x}, {y0})', MATRIX, ranks=(2,)),
        _way('torch.einsum("bij,bkj->bik", {x}, {y0})', SAME, ranks=(3,)),
    ),
    "torch.kron": (_way("torch.kron({x}, {y0})", "torch.randn(2, 2)", ranks=(2,)),),
    "torch.linalg.multi_dot": (_way("torch.linalg.multi_dot([{x}, {y0}, {y1}])", MATRIX, MATRIX, ranks=(2,)),),
    "nn.functional.linear": (_way("nn.functional.linear({x}, {y0}, {y1})", MATRIX, "torch.randn({last})"),),
    "nn.Bilinear": (_way("{m}({x}, {y0})", SAME, module="nn.Bilinear({last}, {last}, 16)", ranks=(2, 3)),),
    "nn.functional.bilinear": (
        _way("nn.functional.bilinear({x}, {y0}, {y1})", SAME, "torch.randn(16, {last}, {last}) / {last}", ranks=(2, 3)),
    ),
    # Attention and recurrence.
    "nn.functional.scaled_dot_product_attention": (
        _way("nn.functional.scaled_dot_product_attention({x}, {y0}, {y1})", SAME, SAME, ranks=(3, 4)),
    ),
    "nn.MultiheadAttention": (
        _way("{m}({x}, {x}, {x})[0]", module="nn.MultiheadAttention({last}, 4, batch_first=True)", ranks=(3,)),
    ),
    "nn.RNNCell": (_way("{m}({x}, {y0})", SAME, module="nn.RNNCell({last}, {last})", ranks=(2,)),),
    "nn.GRUCell": (_way("{m}({x}, {y0})", SAME, module="nn.GRUCell({last}, {last})", ranks=(2,)),),
    "nn.LSTMCell": (_way("{m}({x}, ({y0}, {y1}))[0]", SAME, SAME, module="nn.LSTMCell({last}, {last})", ranks=(2,)),),
    "nn.TransformerEncoderLayer": (_way("{m}({x})", module=f"nn.TransformerEncoderLayer{_LAYER}", ranks=(3,)),),
    "nn.TransformerDecoderLayer": (_way("{m}({x}, {y0})", SAME, module=f"nn.TransformerDecoderLayer{_LAYER}", ranks=(3,)),),
    "nn.TransformerEncoder": (
        _way("{m}({x})", module=f"nn.TransformerEncoder(nn.TransformerEncoderLayer{_LAYER}, num_layers=2)", ranks=(3,)),
    ),
    "nn.TransformerDecoder": (
        _way(
            "{m}({x}, {y0})", SAME, module=f"nn.TransformerDecoder(nn.TransformerDecoderLayer{_LAYER}, num_layers=2)", ranks=(3,)
        ),
    ),
    "nn.Transformer": (
        _way(
            "{m}({x}, {y0})",
            SAME,
            module="nn.Transformer({last}, 4, 1, 1, dim_feedforward={double}, batch_first=True)",
            ranks=(3,),
        ),
    ),
    # Normalization.
    "nn.functional.batch_norm": (
        _way(
            "nn.functional.batch_norm({x}, {y0}, {y1})",
            "torch.randn({s1})",
            "torch.rand({s1}) + 0.5",
            ranks=(2, 3, 4),
        ),
    ),
    "nn.functional.layer_norm": (_way("nn.functional.layer_norm({x}, ({last},))"),),
    "nn.functional.rms_norm": (_way("nn.functional.rms_norm({x}, ({last},))"),),
    "nn.functional.normalize": (_way("nn.functional.normalize({x}, dim=-1)"),),
    # Images.
    "nn.functional.fold": (_way("nn.functional.fold(nn.functional.unfold({x}, 3), ({s2}, {s3}), 3)", ranks=(4,)),),
    "nn.functional.unfold": (_way("nn.functional.unfold({x}, kernel_size=3)", ranks=(4,)),),
    "nn.functional.grid_sample": (
        _way(
            "nn.functional.grid_sample({x}, {y0}, align_corners=False)",
            "torch.rand({s0}, {s2}, {s3}, 2) * 2.0 - 1.0",
            ranks=(4,),
        ),
    ),
    "nn.functional.interpolate": (
        _way('nn.functional.interpolate({x}, scale_factor=2, mode="bilinear")', ranks=(4,)),
        _way('nn.functional.interpolate({x}, scale_factor=2, mode="linear")', ranks=(3,)),
    ),
    "nn.Upsample": (_way("{m}({x})", module='nn.Upsample(scale_factor=2, mode="bicubic")', ranks=(4,)),),
    "nn.functional.max_unpool2d": (
        _way("nn.functional.max_unpool2d(*nn.functional.max_pool2d({x}, 2, return_indices=True), 2)", ranks=(4,)),
    ),
    # Losses, one number for each row or element.
    "nn.functional.cross_entropy": (_way('nn.functional.cross_entropy({x}, {y0}, reduction="none")', _CLASSES, ranks=(2,)),),
    "nn.functional.nll_loss": (_way('nn.functional.nll_loss({x}, {y0}, reduction="none")', _CLASSES, ranks=(2,)),),
    "nn.functional.multi_margin_loss": (
        _way('nn.functional.multi_margin_loss({x}, {y0}, reduction="none")', _CLASSES, ranks=(2,)),
    ),
    "nn.functional.multilabel_margin_loss": (
        _way('nn.functional.multilabel_margin_loss({x}, {y0}, reduction="none")', INDEX, ranks=(2,)),
    ),
    "nn.functional.hinge_embedding_loss": (_way('nn.functional.hinge_embedding_loss({x}, {y0}, reduction="none")', _SIGNS),),
    "nn.functional.soft_margin_loss": (_way('nn.functional.soft_margin_loss({x}, {y0}, reduction="none")', _SIGNS),),
    "nn.functional.margin_ranking_loss": (
        _way('nn.functional.margin_ranking_loss({x}, {y0}, {y1}, reduction="none")', SAME, _SIGNS),
    ),
    "nn.functional.cosine_embedding_loss": (
        _way(
            'nn.functional.cosine_embedding_loss({x}, {y0}, {y1}, reduction="none")',
            SAME,
            "torch.randint(0, 2, ({s0},)) * 2.0 - 1.0",
            ranks=(2,),
        ),
    ),
    "nn.functional.binary_cross_entropy": (
        _way('nn.functional.binary_cross_entropy(torch.sigmoid({x}), {y0}, reduction="none")', "torch.rand({shape})"),
    ),
    "nn.functional.binary_cross_entropy_with_logits": (
        _way('nn.functional.binary_cross_entropy_with_logits({x}, {y0}, reduction="none")', "torch.rand({shape})"),
    ),
    "nn.functional.kl_div": (_way('nn.functional.kl_div({x}, {y0}, reduction="none")', "torch.rand({shape})"),),
    "nn.AdaptiveLogSoftmaxWithLoss": (
        _way("{m}.log_prob({x})", module="nn.AdaptiveLogSoftmaxWithLoss({last}, 32, cutoffs=[8, 16])", ranks=(2,)),
    ),
    "nn.functional.embedding": (_way("nn.functional.embedding({y0}, {x})", "torch.randint(0, {s0}, ({s0},))", ranks=(2,)),),
    "nn.functional.embedding_bag": (
        _way("nn.functional.embedding_bag({y0}, {x})", "torch.randint(0, {s0}, ({s0}, 8))", ranks=(2,)),
    ),
    # Picking and placing.
    "torch.gather": (_way("torch.gather({x}, -1, {y0})", INDEX),),
    "torch.take_along_dim": (_way("torch.take_along_dim({x}, {y0}, dim=-1)", INDEX),),
    "torch.scatter_add": (_way("torch.scatter_add({x}, -1, {y0}, {y1})", INDEX, SAME),),
    "torch.scatter_reduce": (_way('torch.scatter_reduce({x}, -1, {y0}, {y1}, reduce="amax")', INDEX, SAME),),
    "torch.index_select": (_way("torch.index_select({x}, -1, {y0})", _ROW_INDEX),),
    "torch.index_add": (_way("torch.index_add({x}, -1, {y0}, {y1})", _ROW_INDEX, SAME),),
    "torch.index_copy": (
        _way("torch.index_copy({x}, -1, {y0}, {y1})", "torch.randperm({last})[:{half}]", "torch.randn({batch}{prev}, {half})"),
    ),
    "torch.index_fill": (_way("torch.index_fill({x}, -1, {y0}, 0.5)", "torch.randperm({last})[:{half}]"),),
    "torch.index_reduce": (_way('torch.index_reduce({x}, -1, {y0}, {y1}, "amax")', _ROW_INDEX, SAME),),
    "torch.take": (_way("torch.take({x}, {y0})", INDEX),),
    "torch.masked_fill": (_way("torch.masked_fill({x}, {y0}, 0.5)", MASK),),
    "torch.masked_scatter": (_way("torch.masked_scatter({x}, {y0}, {y1})", MASK, SAME),),
    "torch.where": (_way("torch.where({y0}, {x}, {y1})", MASK, SAME),),
    "torch.select_scatter": (_way("torch.select_scatter({x}, {y0}, dim=-1, index=0)", "torch.randn({batch}{prev})"),),
    "torch.slice_scatter": (_way("torch.slice_scatter({x}, {y0}, dim=-1, end={half})", "torch.randn({batch}{prev}, {half})"),),
    "torch.diagonal_scatter": (_way("torch.diagonal_scatter({x}, {y0})", "torch.randn({last})", ranks=(2,), square=True),),
    # Joining and moving.
    "torch.cat": (_way("torch.cat([{x}, {y0}], dim=-1)", SAME),),
    "torch.stack": (_way("torch.stack([{x}, {y0}], dim=1)", SAME, ranks=(2, 3)),),
    "torch.hstack": (_way("torch.hstack([{x}, {y0}])", SAME),),
    "torch.vstack": (_way("torch.vstack([{x}, {y0}])", SAME),),
    "torch.dstack": (_way("torch.dstack([{x}, {y0}])", SAME),),
    "torch.column_stack": (_way("torch.column_stack([{x}, {y0}])", SAME, ranks=(2,)),),
    "torch.block_diag": (_way("torch.block_diag({x}, {y0})", SAME, ranks=(2,)),),
    "torch.permute": (
        _way("torch.permute({x}, (1, 0)).contiguous()", ranks=(2,)),
        _way("torch.permute({x}, (0, 2, 1)).contiguous()", ranks=(3,)),
        _way("torch.permute({x}, (0, 2, 3, 1)).contiguous()", ranks=(4,)),
    ),
    "torch.Tensor.expand": (_way("{x}.expand(4, {shape}).contiguous()", ranks=(2, 3)),),
    "torch.clip": (_way("torch.clip({x}, min=-0.5, max=1.5)"),),
    "torch.tile": (_way("torch.tile({x}, (2,))"),),
    "torch.repeat_interleave": (_way("torch.repeat_interleave({x}, 2, dim=-1)"),),
    "torch.flip": (_way("torch.flip({x}, dims=(-1,))"),),
    "torch.roll": (_way("torch.roll({x}, shifts=3, dims=-1)"),),
    "torch.Tensor.repeat": (
        _way("{x}.repeat(1, 2)", ranks=(2,)),
        _way("{x}.repeat(1, 1, 2)", ranks=(3,)),
    ),
    "torch.Tensor.unfold": (_way("{x}.unfold(-1, 4, 2).contiguous()"),),
    # Elementwise, with constants that keep both sides of a bend.
    "torch.clamp": (_way("torch.clamp({x}, min=-0.5, max=1.5)"),),
    "torch.pow": (_way("torch.pow(torch.abs({x}) + 0.1, 1.5)"),),
    "torch.div": (_way("torch.div({x}, {y0})", POSITIVE),),
    "torch.floor_divide": (_way("torch.floor_divide({x}, {y0})", POSITIVE),),
    "torch.fmod": (_way("torch.fmod({x}, {y0})", POSITIVE),),
    "torch.remainder": (_way("torch.remainder({x}, {y0})", POSITIVE),),
    "torch.addcdiv": (_way("torch.addcdiv({x}, {y0}, {y1})", SAME, POSITIVE),),
    "torch.lerp": (_way("torch.lerp({x}, {y0}, 0.3)", SAME),),
    "torch.ldexp": (_way("torch.ldexp({x}, {y0})", "torch.randint(-2, 3, ({shape}))"),),
    "torch.igamma": (_way("torch.igamma({y0}, torch.abs({x}))", POSITIVE),),
    "torch.igammac": (_way("torch.igammac({y0}, torch.abs({x}))", POSITIVE),),
    "torch.polygamma": (_way("torch.polygamma(1, torch.abs({x}) + 0.5)"),),
    "torch.mvlgamma": (_way("torch.mvlgamma(torch.abs({x}) + 1.0, p=2)"),),
    "torch.xlogy": (_way("torch.xlogy({x}, {y0})", POSITIVE),),
    "torch.special.xlog1py": (_way("torch.special.xlog1py({x}, {y0})", POSITIVE),),
    "torch.special.zeta": (_way("torch.special.zeta(torch.abs({x}) + 1.5, {y0})", POSITIVE),),
    "torch.digamma": (_way("torch.digamma(torch.abs({x}) + 0.5)"),),
    "torch.lgamma": (_way("torch.lgamma(torch.abs({x}) + 0.5)"),),
    "torch.reciprocal": (_way("torch.reciprocal(torch.abs({x}) + 0.5)"),),
    # Reductions whose defaults are others.
    "torch.norm": (_way("torch.norm({x}, dim=-1)"),),
    "torch.std_mean": (_way("torch.stack(torch.std_mean({x}, dim=-1), dim=-1)"),),
    "torch.var_mean": (_way("torch.stack(torch.var_mean({x}, dim=-1), dim=-1)"),),
    "torch.aminmax": (_way("torch.stack(torch.aminmax({x}, dim=-1), dim=-1)"),),
    "torch.renorm": (_way("torch.renorm({x}, p=2, dim=0, maxnorm=2.0)"),),
    "torch.histc": (_way("torch.histc({x}, bins=64, min=-3.0, max=3.0)"),),
    "torch.stft": (_way("torch.stft({x}, n_fft=64, return_complex=True).abs()", ranks=(2,)),),
    "torch.gradient": (_way("torch.gradient({x}, dim=-1)[0]"),),
    # Linear algebra on matrices that are well conditioned for any x.
    "torch.linalg.inv": (_square(f"torch.linalg.inv({DOMINANT})"),),
    "torch.linalg.pinv": (_square(f"torch.linalg.pinv({DOMINANT})"),),
    "torch.linalg.det": (_square("torch.linalg.det({x} / {last} + torch.eye({last}, device={x}.device))"),),
    "torch.linalg.slogdet": (_square(f"torch.linalg.slogdet({DOMINANT})[1]"),),
    "torch.logdet": (_square(f"torch.logdet({SPD})"),),
    "torch.linalg.cholesky": (_square(f"torch.linalg.cholesky({SPD})"),),
    "torch.cholesky_inverse": (_square(f"torch.cholesky_inverse(torch.linalg.cholesky({SPD}))"),),
    "torch.cholesky_solve": (_square(f"torch.cholesky_solve({{y0}}, torch.linalg.cholesky({SPD}))", SAME),),
    "torch.linalg.solve": (_square(f"torch.linalg.solve({DOMINANT}, {{y0}})", SAME),),
    "torch.linalg.solve_triangular": (
        _square(f"torch.linalg.solve_triangular(torch.triu({DOMINANT}), {{y0}}, upper=True)", SAME),
    ),
    "torch.linalg.lstsq": (_square(f"torch.linalg.lstsq({DOMINANT}, {{y0}})[0]", SAME),),
    "torch.linalg.eigh": (_square(f"torch.linalg.eigh({SPD})[0]"),),
    "torch.linalg.eigvalsh": (_square(f"torch.linalg.eigvalsh({SPD})"),),
    "torch.linalg.svd": (_way("torch.linalg.svd({x}, full_matrices=False)[1]", ranks=(2, 3)),),
    "torch.linalg.svdvals": (_way("torch.linalg.svdvals({x})", ranks=(2, 3)),),
    "torch.linalg.qr": (_way("torch.abs(torch.linalg.qr({x})[1])", ranks=(2, 3)),),
    "torch.linalg.lu_factor": (_square(f"torch.linalg.lu_factor({DOMINANT})[0]"),),
    "torch.linalg.matrix_exp": (_square("torch.linalg.matrix_exp({x} / {last} ** 0.5)"),),
    "torch.linalg.matrix_power": (_square("torch.linalg.matrix_power({x} / {last} ** 0.5, 3)"),),
    "torch.linalg.cond": (_square(f"torch.linalg.cond({DOMINANT})"),),
    "torch.linalg.matrix_norm": (_way("torch.linalg.matrix_norm({x})", ranks=(3, 4)),),
    "torch.linalg.vector_norm": (_way("torch.linalg.vector_norm({x}, ord=3, dim=-1)"),),
}
