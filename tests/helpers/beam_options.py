"""Remembers how Beam has parsed options: a fifth of the time of a test that builds a pipeline.

In: Beam's classes of options. Out: the same objects. Holds: arguments that a class has parsed once are parsed alike again, and
each object has values of its own. Not covered: code of users; the cache is no part of the product.

Beam makes an object of options, with a parser of its own, for each comparison of two types.
"""

import copy
import sys
from typing import Any


def remembering(real: Any) -> Any:
    """Return an initializer of `PipelineOptions` that does what Beam's own, `real`, does, and parses the same arguments once."""
    parsed: dict[tuple[Any, ...], Any] = {}

    def initialize(self: Any, flags: Any = None, **kwargs: Any) -> None:
        if isinstance(flags, str):
            real(self, flags, **kwargs)  # which refuses it
        arguments = None if flags is None else [*flags]
        key = (type(self), *(sys.argv[1:] if arguments is None else ("given", *arguments)))
        if key not in parsed:
            real(self, arguments, **kwargs)
            parsed[key] = copy.deepcopy(self._visible_options)
        else:
            self._flags, self._visible_options, self._all_options = arguments, copy.deepcopy(parsed[key]), kwargs
            for name in self._visible_option_list():
                kwargs.setdefault(name, getattr(self._visible_options, name))

    return initialize


def pytest_runtest_protocol() -> None:
    """Have Beam remember how it has parsed options, from the first test that begins when Beam is loaded."""
    options = getattr(sys.modules.get("apache_beam.options.pipeline_options"), "PipelineOptions", None)
    if options is not None and options.__init__.__module__ != __name__:
        options.__init__ = remembering(options.__init__)
