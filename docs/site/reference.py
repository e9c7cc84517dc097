"""The pages of the API reference, as Markdown, from the live objects and their docstrings.

`reference()` gives their texts, and where each name is: build.py makes links of that, on these pages and all others.
"""

from __future__ import annotations

import html
import importlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from public import Entry, entries, members

import norch

ROOT = Path(__file__).parents[2]

# The functions of `norch` itself, by the module that has them; the first that fits decides.
FAMILIES = {
    "creation": ("Making tensors", ("ops.creation", "ops.creation_like", "ops.from_data", "tensor.interop",
                                    "compat.legacy", "compat.window_functions")),
    "random": ("Random numbers", ("ops.random", "ops.sampling", "ops.generator")),
    "elementwise": ("Elementwise ops", ("ops.elementwise", "compat.complex_parts")),
    "reductions": ("Reductions, scans, sorting", ("ops.reduction",)),
    "shapes": ("Shapes and views", ("ops.shape", "tensor.shape_changes", "tensor.shape")),
    "indexing": ("Indexing", ("ops.indexing", "ops.masks", "ops.scatter_copies", "tensor.indexing",
                              "tensor.assignment")),
    "products": ("Matrix products", ("ops.matrix", "linalg")),
    "networks": ("Ops of networks", ("ops.nn", "ops.copying")),
    "optimizer-steps": ("Steps of optimisers", ("ops.optimizer",)),
    "tools": ("Tools", ("capturing", "inspection", "profiler", "memory", "func", "compat.compiling", "source_lines")),
    "files": ("Files", ("serialization",)),
    "gradients": ("Gradient modes", ("autograd",)),
    "mixed-precision": ("Mixed precision", ("amp",)),
    "errors": ("Errors", ("errors",)),
    "settings": ("Dtypes, devices, settings", ("",)),
}  # fmt: skip

# Namespaces: where a page's names are imported from. Those that are not there (an extra that is not installed) are left
# out by `pages`, and named by it.
NAMESPACES = {
    "autograd": ("norch.autograd", "norch.autograd.functional", "norch.autograd.graph"),
    "linalg": ("norch.linalg",),
    "fft": ("norch.fft",),
    "special": ("norch.special", "norch.signal.windows"),
    "sparse": ("norch.sparse",),
    "func": ("norch.func",),
    "distributions": ("norch.distributions", "norch.distributions.constraints", "norch.distributions.transforms"),
    "nn": ("norch.nn",),
    "nn-functional": ("norch.nn.functional",),
    "nn-attention": ("norch.nn.attention", "norch.nn.attention.flex_attention"),
    "nn-init": ("norch.nn.init", "norch.nn.grad"),
    "nn-quantized": ("norch.nn.quantized",),
    "nn-utils": ("norch.nn.utils", "norch.nn.utils.rnn", "norch.nn.utils.parametrize",
                 "norch.nn.utils.parametrizations", "norch.nn.utils.prune", "norch.nn.utils.stateless",
                 "norch.nn.parallel"),
    "fx": ("norch.fx",),
    "optim": ("norch.optim", "norch.optim.lr_scheduler", "norch.optim.swa_utils"),
    "utils-data": ("norch.utils.data",),
    "utils": ("norch.utils.checkpoint", "norch.utils.tensorboard"),
    "vision": ("norch.vision.datasets", "norch.vision.transforms", "norch.vision.transforms.v2", "norch.vision.io",
               "norch.vision.ops", "norch.vision.utils"),
    "vision-models": ("norch.vision.models", "norch.vision.models.segmentation", "norch.vision.models.detection"),
    "capture": ("norch.capturing",),
    "profiler": ("norch.profiler",),
    "memory": ("norch.memory",),
    "amp": ("norch.amp",),
    "cuda": ("norch.device_module", "norch_cuda.module", "norch_cuda.stream"),
    "cpu": ("norch_cpu.module",),
    "accelerator": ("norch.accelerator",),
    "serialization": ("norch.serialization",),
    "distributed": ("norch.distributed", "norch.distributed.fsdp", "norch.distributed.checkpoint",
                    "norch.distributed.tensor.parallel", "norch.distributed.pipelining", "norch.distributed.optim",
                    "norch.distributed.nn.functional", "norch.distributed.engine"),
    "backend": ("norch.backend",),
    "testing": ("norch.testing.compare", "norch.testing.conformance", "norch.testing.shadow", "norch.testing.strict",
                "norch.testing.null"),
}  # fmt: skip


@dataclass
class Reference:
    pages: dict[str, str] = field(default_factory=dict)  # file name: Markdown
    anchors: dict[str, str] = field(default_factory=dict)  # "norch.exp": "norch-elementwise.md#norch.exp"
    names: dict[int, Entry] = field(default_factory=dict)  # by object: the entry that describes it
    missing: list[str] = field(default_factory=list)


def reference() -> Reference:
    made = Reference()
    planned = _plan(made)
    for file, (_, _, sections) in planned.items():
        for entry in (e for _, found in sections for e in found):
            _place(made, file, entry)
    for file, (title, intro, sections) in planned.items():
        made.pages[file] = _page(made, file, title, intro, sections)
    made.pages["index.md"] = _index(planned)
    return made


def _plan(made: Reference) -> dict[str, tuple[str, str, list[tuple[str, list[Entry]]]]]:
    """By file: title, introduction, and the entries of each namespace."""
    families: dict[str, list[Entry]] = {name: [] for name in FAMILIES}
    everything = entries("norch", norch)
    by_name = {name: entry for entry in everything for name in entry.names}
    for entry in everything:
        base = by_name.get(entry.name.removesuffix("_"))
        if entry.name.endswith("_") and base and not entry.name.endswith("step_"):
            continue  # the in-place form of another
        if entry.value is not norch.Tensor:
            families[_family(entry)].append(entry)
    planned = {}
    for name, (title, _) in FAMILIES.items():
        if families[name]:
            planned[f"norch-{name}.md"] = (f"norch: {title[0].lower()}{title[1:]}", "", [("norch", families[name])])
    tensor = Entry("norch", ["Tensor"], norch.Tensor)
    planned["tensor.md"] = ("norch.Tensor", tensor.text, [("norch.Tensor", _methods())])
    for name, namespaces in NAMESPACES.items():
        sections, intro = [], ""
        for namespace in namespaces:
            try:
                module = importlib.import_module(namespace)
            except ImportError as error:
                made.missing.append(f"{namespace}: {error}")
                continue
            intro = intro or (module.__doc__ or "")
            shown = _shown(namespace)
            found = members(shown, module.DeviceModule) if namespace == "norch.device_module" else []
            sections.append((shown, found or entries(shown, module)))
        if any(found for _, found in sections):
            planned[f"{name}.md"] = (sections[0][0], intro, sections)
    return planned


def _shown(namespace: str) -> str:
    """As users write it."""
    if namespace == "norch.device_module":
        return "norch.cuda"
    return re.sub(r"^norch_(cpu|cuda)\.\w+", r"norch.\1", namespace)


def _family(entry: Entry) -> str:
    function = getattr(entry.value, "of_method", entry.value)
    module = f"{getattr(entry.function, '__module__', None) or getattr(function, '__module__', '')}."
    for name, (_, modules) in FAMILIES.items():
        if any(module.startswith(f"norch.{m}." if m else "norch.") for m in modules):
            return name
    return "settings"


def _methods() -> list[Entry]:
    found: dict[str, Entry] = {}
    for owner in norch.Tensor.__mro__[:-1]:
        for name, value in vars(owner).items():
            if not name.startswith("_") and (
                callable(value) or isinstance(value, property | classmethod | staticmethod)
            ):
                found.setdefault(name, Entry("norch.Tensor", [name], value))
            elif not name.startswith("_") and type(value).__name__ in ("member_descriptor", "getset_descriptor"):
                continue
    return [found[name] for name in sorted(found)]


def _place(made: Reference, file: str, entry: Entry) -> None:
    """Notes where an entry is found: where the object was first, unless it is new."""
    known = made.names.get(_identity(entry))
    if known is None:
        made.names[_identity(entry)] = entry
        for name in entry.names:
            made.anchors.setdefault(f"{entry.namespace}.{name}", f"{file}#{entry.path}")
        for member in entry.members:
            place = entry.path if member.name == "forward" else member.path
            made.anchors.setdefault(member.path, f"{file}#{place}")
    else:
        for name in entry.names:
            made.anchors.setdefault(f"{entry.namespace}.{name}", made.anchors[known.path])


def _identity(entry: Entry) -> int:
    return id(entry.function) if callable(entry.function) else id(entry.value)


# --- Text -----------------------------------------------------------------------------------------------------------


def _page(made: Reference, file: str, title: str, intro: str, sections: list[tuple[str, list[Entry]]]) -> str:
    parts = [f"# {title}", markdown(intro)]
    for number, (namespace, found) in enumerate(sections):
        own = [e for e in found if made.names[_identity(e)] is e]
        others = [e for e in found if made.names[_identity(e)] is not e]
        level = 2
        if len({name for name, _ in sections}) > 1 and (own or others):
            if number:
                parts.append(f"## {namespace} {{ #{namespace} }}")
            level = 3
        parts += [_entry(made, e, level) for e in own]
        if others:
            parts.append(f"{'#' * level} Also here {{ #also-{namespace} }}")
            rows = [f"| `{namespace}.{e.name}` | {_cell(e.first)} |" for e in others]
            parts.append("\n".join(["| | |", "| --- | --- |", *rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _entry(made: Reference, entry: Entry, level: int) -> str:
    kind = "class " if isinstance(entry.value, type) else "property " if isinstance(entry.value, property) else ""
    head = entry.name if level < 4 else f"{entry.namespace.rpartition('.')[2]}.{entry.name}"
    signature = (
        f'<pre class="signature"><code><i>{kind}</i>{html.escape(entry.namespace)}.<b>{html.escape(entry.name)}</b>'
        f"{html.escape(entry.signature)}</code></pre>"
    )
    parts = [f"{'#' * level} {head.replace('_', chr(92) + '_')} {{ #{entry.path} }}", signature]
    if isinstance(entry.value, type):
        known = [made.names.get(id(b)) for b in entry.value.__bases__]
        bases = [f"`{b.path}`" for b in known if b]
        bases += [f"`{b.__name__}`" for b in entry.value.__bases__ if b.__module__ == "builtins" and b is not object]
        if bases:
            parts.append(f"Bases: {', '.join(bases)}")
    parts.append(markdown(entry.text, entry.signature))
    notes = []
    if len(entry.names) > 1:
        notes.append("Also " + ", ".join(f"`{entry.namespace}.{n}`" for n in entry.names[1:]) + ".")
    if entry.namespace == "norch" and level == 2:
        if getattr(norch.Tensor, entry.name, None) is not None:
            notes.append(f"Method: `x.{entry.name}(…)`.")
        if hasattr(norch.Tensor, f"{entry.name}_"):
            notes.append(f"In place: `x.{entry.name}_(…)`.")
    place = entry.source
    if place and ROOT in Path(place[0]).parents:
        path = Path(place[0]).relative_to(ROOT).as_posix()
        notes.append(f"[Source](../../{path}#L{place[1]})")
    if notes:
        parts.append(" ".join(notes) + "\n{ .notes }")
    for member in entry.members:
        if member.name == "forward":
            parts.append(f"`forward{member.signature}`: {markdown(member.text, member.signature)}")
        else:
            parts.append(_entry(made, member, level + 1))
    return "\n\n".join(part for part in parts if part)


def _index(planned: dict[str, tuple[str, str, list[tuple[str, list[Entry]]]]]) -> str:
    lines = ["# API reference", "", "Made from the docstrings of this version. Names follow PyTorch's.", ""]
    lines += ["| | |", "| --- | --- |"]
    for file, (title, intro, sections) in planned.items():
        names = ", ".join(f"[`{e.name}`]({file}#{e.path})" for _, found in sections for e in found)
        told = _cell(" ".join(intro.partition("\n\n")[0].split())) if intro else names
        lines.append(f"| [{title}]({file}) | {told} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return escaped(text).replace("|", "\\|")


def markdown(text: str, signature: str = "") -> str:
    """A docstring as Markdown: nothing in it is markup but its code, its lists and its indented formulas."""
    lines = text.splitlines()
    names = set(re.findall(r"\w+", signature))
    made: list[str] = []
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        if line.startswith("    ") and (not before.strip() or before.startswith("    ")):
            made.append(line)
            continue
        found = re.match(r"([a-z_]\w*(?:(?:, | and )[a-z_]\w*)*): (.*)", line)
        if found and set(re.findall(r"\w+", found[1])) - {"and"} <= names:
            made += ["", f"**{escaped(found[1])}**: {escaped(found[2])}"]
            continue
        if re.match(r"[-*] |\d+\. ", line) and before.strip() and not re.match(r"[-*] |\d+\. |  ", before):
            made.append("")
        made.append(escaped(line))
        if line.startswith(("===", "---")):
            made[-1] = "    " + line
    return "\n".join(made).strip("\n")


def escaped(text: str) -> str:
    """With nothing that Markdown would take for markup, outside of code and of the signs of lists."""
    parts = re.split(r"(`+[^`]*`+)", text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"(?<!^)([*_<\[\]#])|^([_<\[\]#]|\*(?! ))", r"\\\1\2", parts[i])
        parts[i] = re.sub(r"(?<![\w.])(\w+Error)\b", r"`\1`", parts[i])
    return "".join(parts)
