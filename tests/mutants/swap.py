"""Exchange the code of loaded functions for that of another text of their module.

In: a module's text before and after a change. Out: the functions whose code differs, and a loaded module with them exchanged.
Holds: callers that imported a function by name, cached wrappers and properties run the new code too, since the function objects
stay. Not covered: changes outside functions (constants, defaults, class bodies), for which there is no answer.
"""

import ast
import gc
import types
from collections import defaultdict

Codes = dict[str, list[types.CodeType]]
"""Code objects of functions by their qualified names, in the order of the text: a property and its setter share a name."""


def changed_functions(before: str, after: str) -> Codes | None:
    """Return the new code of all functions of each name of which one differs; None if something else differs.

    >>> list(changed_functions("def f(): return 1", "def f(): return 2"))
    ['f']
    >>> changed_functions("LIMIT = 1", "LIMIT = 2") is None
    True
    """
    # Both texts in one layout, so that equal functions have equal code.
    old, new = (compile(ast.unparse(ast.parse(text)), "module", "exec") for text in (before, after))
    if _outside(old) != _outside(new):
        return None
    codes, others = _functions(old), _functions(new)
    return {name: others[name] for name in codes if codes[name] != others[name]}


def exchange(module: str, file: str, codes: Codes) -> None:
    """Give the loaded functions of a module their new code.

    Raises:
        LookupError: a name has more or fewer functions than the text has.
    """
    loaded: dict[str, list[types.FunctionType]] = defaultdict(list)
    gc.unfreeze()  # objects that are left out of searches are not listed
    for one in gc.get_objects():
        if (
            type(one) is types.FunctionType  # other objects may raise when they are asked for their class
            and one.__code__.co_filename == file
            and one.__module__ == module
            and one.__code__.co_qualname in codes
        ):
            loaded[one.__code__.co_qualname].append(one)
    for name, new in codes.items():
        functions = sorted(loaded[name], key=lambda function: function.__code__.co_firstlineno)
        if len(functions) != len(new):
            raise LookupError(f"{module}: {name} is {len(functions)} functions, not {len(new)}")
        for function, code in zip(functions, new, strict=True):
            function.__code__ = code


def _functions(code: types.CodeType) -> Codes:
    """The functions of modules and classes; functions inside of functions are parts of their code."""
    found: Codes = defaultdict(list)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            if _is_class_body(inner):
                for name, codes in _functions(inner).items():
                    found[name] += codes
            else:
                found[inner.co_qualname].append(inner)
    return dict(found)


def _outside(code: types.CodeType) -> object:
    """What a text does outside of functions, in a form to compare."""
    constants = [
        (_outside(one) if _is_class_body(one) else one.co_qualname)
        if isinstance(one, types.CodeType)
        else (type(one), repr(one))
        for one in code.co_consts
    ]
    return code.co_code, code.co_names, constants


def _is_class_body(code: types.CodeType) -> bool:
    """Return True if code fills a namespace, as bodies of classes do and functions do not."""
    return not code.co_flags & (1 << 1)  # inspect.CO_NEWLOCALS
