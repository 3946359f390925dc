"""How numba takes named tuples of arrays as one pointer.

numba passes a tuple of arrays as more than a hundred arguments, which cost many times the work of a small kernel, and
most of the time to compile it. A class marked ``by_reference`` is passed as a pointer to where its arrays begin and how
long they are instead; the caller in Python holds the arrays, so nothing is counted.
"""

from __future__ import annotations

import hashlib
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, lower_getattr_generic, register_model, typeof_impl, unbox
from numba.np.arrayobj import make_array, populate_array

from subreplay.kernels.kernel import ByReference


class Reference(types.Type):
    """The type of such a tuple in kernels; ``arrays`` are the types of its fields by name."""

    def __init__(self, name: str, arrays: dict[str, types.Array]) -> None:
        self.arrays = arrays
        digest = hashlib.sha256(repr(arrays).encode()).hexdigest()
        super().__init__(f"{name}_{digest[:16]}")


@typeof_impl.register(ByReference)
def _type_of(value: Any, context: Any) -> Reference:
    arrays = {name: typeof_impl(getattr(value, name), context) for name in value._fields}
    if gaps := [name for name, array in arrays.items() if array.layout != "C"]:
        raise TypeError(f"{type(value).__name__}: {', '.join(gaps)} must be without gaps")
    return Reference(type(value).__name__, arrays)


register_model(Reference)(models.OpaqueModel)


@infer_getattr
class _Fields(AttributeTemplate):
    key = Reference

    def generic_resolve(self, reference: Reference, name: str) -> types.Array | None:  # type: ignore[override]
        return reference.arrays.get(name)


@unbox(Reference)
def _to_pointer(reference: Reference, value: Any, c: Any) -> NativeValue:
    """Lay the arrays of a tuple out side by side, for as long as the call takes."""
    address = cgutils.alloca_once(c.builder, _layout(c.context, reference))
    failed = cgutils.false_bit
    for at, array in enumerate(reference.arrays.values()):
        native = c.unbox(array, c.pyapi.tuple_getitem(value, at))
        c.builder.store(native.value, cgutils.gep_inbounds(c.builder, address, 0, at))
        failed = c.builder.or_(failed, native.is_error)
    return NativeValue(c.builder.bitcast(address, c.pyapi.voidptr), is_error=failed)


@lower_getattr_generic(Reference)
def _field(context: Any, builder: Any, reference: Reference, pointer: Any, name: str) -> Any:
    """The array of that name. Where it is and how long cannot change while a kernel runs (``invariant.load``)."""
    array = reference.arrays[name]
    address = builder.bitcast(pointer, _layout(context, reference).as_pointer())
    stored = make_array(array)(
        context, builder, ref=cgutils.gep_inbounds(builder, address, 0, list(reference.arrays).index(name))
    )
    data, shape = stored.data, stored.shape
    for load in (data, shape):
        load.set_metadata("invariant.load", builder.module.add_metadata([]))
    lengths = cgutils.unpack_tuple(builder, shape, array.ndim)
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array.dtype)))
    strides = [itemsize]
    for length in reversed(lengths[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    found = make_array(array)(context, builder)
    populate_array(found, data, lengths, strides, itemsize, meminfo=None)
    return found._getvalue()


def _layout(context: Any, reference: Reference) -> ir.LiteralStructType:
    return ir.LiteralStructType([context.get_value_type(array) for array in reference.arrays.values()])
