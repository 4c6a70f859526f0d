"""The resource `LogPipeline`: one declaration, from which the parser and the CRD are made."""

from logpipeline.spec.mistakes import Mistake, SpecError
from logpipeline.spec.model import LogPipeline, LogPipelineSpec
from logpipeline.spec.parse import check_update, dump, expand_local, load, parse

__all__ = [
    "LogPipeline",
    "LogPipelineSpec",
    "Mistake",
    "SpecError",
    "check_update",
    "dump",
    "expand_local",
    "load",
    "parse",
]
