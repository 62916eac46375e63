"""Whether workers form one route: every layer owned once, in order, and the same shared compatibility document everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgr.v1 import common_pb2, worker_pb2

from dgrctl.errors import InputError
from dgrctl.recipes.fingerprint import first_difference
from dgrctl.recipes.placement import LayerRange
from dgrctl.runtime.statuses import stage_title


@dataclass(frozen=True)
class Stage:
    """One stage of a route, as its worker describes itself.

    Attributes:
        index: Its place; 0 is the head.
        address: host:port as the previous stage dials it.
        layers: What it owns.
    """

    index: int
    address: str
    layers: LayerRange
    description: worker_pb2.DescribeResponse

    @classmethod
    def of(cls, index: int, address: str, description: worker_pb2.DescribeResponse) -> Stage:
        """From the worker's answer to Describe."""
        layers = LayerRange(description.range.begin, description.range.end)
        return cls(index, address, layers, description)

    @property
    def title(self) -> str:
        return stage_title(self.index, self.layers.begin, self.layers.end)

    @property
    def wire(self) -> common_pb2.RouteStage:
        """As the wire contract names it."""
        layers = common_pb2.LayerRange(begin=self.layers.begin, end=self.layers.end)
        return common_pb2.RouteStage(address=self.address, range=layers)


def check_chain(stages: Sequence[Stage]) -> None:
    """Refuses stages that do not make a whole model, in their order.

    Raises:
        InputError: a gap, an overlap, a wrong order, layers missing at either end, or a field of the shared compatibility
            document that differs; named with both values.
    """
    head = stages[0]
    expected = 0
    for stage in stages:
        if stage.layers.begin != expected:
            raise InputError(
                f"{stage.title} must begin at layer {expected}",
                where=f"{stage.address}: range.begin",
                remedy="name the stages in layer order, head first, each layer once",
            )
        _check_same_model(head, stage)
        expected = stage.layers.end
    total = head.description.layer_count
    if expected != total:
        raise InputError(
            f"the route ends at layer {expected}, the model has {total}",
            where=f"{stages[-1].address}: range.end",
            remedy="add the stages that own the remaining layers",
        )


def _check_same_model(head: Stage, stage: Stage) -> None:
    field = first_difference(dict(head.description.compatibility), dict(stage.description.compatibility))
    if field is not None:
        here, there = (one.description.compatibility.get(field, "absent") for one in (head, stage))
        raise InputError(
            f"{stage.title} does not fit {head.title}: {field} is {there!r} here and {here!r} there",
            where=f"{stage.address}: compatibility.{field}",
            remedy="start all stages from one recipe, build and model",
        )
    if stage.description.layer_count != head.description.layer_count:
        raise InputError(
            f"{stage.title} counts {stage.description.layer_count} layers, {head.title} {head.description.layer_count}",
            where=f"{stage.address}: layer_count",
            remedy="start all stages from one recipe, build and model",
        )
