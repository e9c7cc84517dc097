"""PyTorch's `torch.fx`: modules and functions as graphs, which programs read, change, write and run.

`symbolic_trace` runs a module on proxies and gives a GraphModule, whose `graph` is the list of its steps and whose
`code` is Python again. A Graph can also be written by hand, or by what is done with a Proxy of one of its nodes.
Norch's own `norch.compile` and `norch.capture` have no need of it.
"""

from . import immutable_collections as immutable_collections
from ._symbolic_trace import PH as PH
from ._symbolic_trace import Tracer as Tracer
from ._symbolic_trace import symbolic_trace as symbolic_trace
from ._symbolic_trace import wrap as wrap
from .codegen import CodeGen as CodeGen
from .graph import Graph as Graph
from .graph_module import GraphModule as GraphModule
from .interpreter import Interpreter as Interpreter
from .interpreter import Transformer as Transformer
from .node import Node as Node
from .node import has_side_effect as has_side_effect
from .node import map_arg as map_arg
from .proxy import Proxy as Proxy
from .subgraph_rewriter import replace_pattern as replace_pattern
