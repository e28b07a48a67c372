"""What may be given for each slot in Python: a name or a table as in files, or an object that stands for the part.

Whoever checks types, or completes what is typed, sees all of it. When settings are checked, only names and tables are
left: `config.objects` has made them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import NonNegativeInt

from coterie.config.spread import Slot

if TYPE_CHECKING:
    import networkx as nx
    import numpy as np
    import polars as pl
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor, nn, optim
    from torch.utils import data

    from coterie import contract, datasets, metrics, optimisers, protocols, topologies
    from coterie.network.graph import Graph

    Part = tuple[Any, ArrayLike] | tuple[Any, Tensor] | data.Dataset[Any] | Any
    Dataset = Slot | datasets.Dataset | Part | tuple[Part, Part] | pl.DataFrame | Callable[..., datasets.Dataset]
    Model = Slot | type[nn.Module] | nn.Module | Callable[..., nn.Module]
    Models = Sequence[Model]
    Topology = (
        Slot
        | topologies.Topology
        | type[topologies.Topology]
        | Graph
        | nx.Graph[Any]
        | NDArray[Any]
        | Callable[[int, np.random.Generator], Graph]
    )
    Partition = Slot | Sequence[ArrayLike] | Callable[..., Any]
    Rule = Slot | contract.Rule | type[contract.Rule]
    Objective = Slot | Callable[..., Tensor]
    Initialiser = Slot | Callable[..., None]
    Optimiser = Slot | optimisers.Optimiser | type[optimisers.Optimiser] | type[optim.Optimizer]
    Protocol = Slot | protocols.Protocol | type[protocols.Protocol]
    Engine = Slot | Any
    Augment = Slot | Callable[..., Any] | Sequence[Slot | Callable[..., Any]]
    Metric = Slot | type[metrics.Metric] | Callable[..., Tensor]
    Metrics = Sequence[Metric] | Mapping[str, Callable[..., Tensor]]
    Measures = Sequence[str]
    Seeds = tuple[int, ...] | Any
    Methods = dict[str, dict[str, Any]] | Any
else:
    Dataset = Model = Topology = Partition = Rule = Objective = Initialiser = Optimiser = Protocol = Engine = Slot
    Models, Metrics, Augment, Measures = list[Slot], tuple[Slot, ...], tuple[Slot, ...], tuple[str, ...]
    Methods, Seeds = dict[str, dict[str, Any]], tuple[NonNegativeInt, ...]
