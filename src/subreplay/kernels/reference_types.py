"""Pass named tuples of arrays to numba kernels as one pointer.

numba passes a tuple of arrays as more than a hundred arguments. They cost many times the work of a small kernel, and
most of its compile time. A class marked ``pass_by_reference`` is passed as a pointer to the addresses and lengths of
its arrays. The Python caller keeps the arrays alive, so no references are counted.
"""

from __future__ import annotations

import hashlib
import operator
from functools import cache
from itertools import accumulate
from typing import Any, Final

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_builtin,
    lower_cast,
    lower_getattr_generic,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.numpy_support import as_dtype

from subreplay.kernels.lazy_kernel import PassedByReference
from subreplay.kernels.numba_internals import fix_integer_index, load_item

_WORD: Final = cgutils.intp_t


class ArrayColumn(types.Array):
    """A one-dimensional array in such a tuple, with a cheap element access of five instead of forty instructions.

    The longer access was two fifths of the code that LLVM had to read for the dispatch replay.
    """

    def __init__(self, array: types.Array) -> None:
        name = f"column of {array.name}"
        super().__init__(array.dtype, 1, "C", readonly=not array.mutable, name=name, aligned=array.aligned)


register_model(ArrayColumn)(models.ArrayModel)


@lower_cast(ArrayColumn, types.Array)
def _cast_to_array(context: Any, builder: Any, column: ArrayColumn, array: types.Array, value: Any) -> Any:
    """Use a column where any array is allowed, as in a variable that holds different arrays."""
    return value


@lower_builtin(operator.getitem, ArrayColumn, types.Integer)
def _load_element(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Load an element, or the address of a record. A negative index counts from the end."""
    (column, kind), (array, index) = signature.args, arguments
    model = context.data_model_manager[column]
    length = builder.extract_value(array, [model.get_field_position("shape"), 0])
    index = fix_integer_index(context, builder, kind, index, length)
    if context.enable_boundscheck:
        cgutils.do_boundscheck(context, builder, index, length)
    data = builder.extract_value(array, model.get_field_position("data"))
    return load_item(context, builder, column, builder.gep(data, [index]))


class ReferenceType(types.Type):
    """The type of such a tuple in kernels; ``arrays`` are the types of its fields by name."""

    def __init__(self, name: str, arrays: dict[str, types.Array]) -> None:
        self.arrays = arrays
        self.offsets: list[int] = []
        digest = hashlib.sha256(repr(arrays).encode()).hexdigest()
        super().__init__(f"{name}_{digest[:16]}")


@typeof_impl.register(PassedByReference)
def _find_type(value: Any, context: Any) -> ReferenceType:
    arrays = {name: typeof_impl(getattr(value, name), context) for name in value._fields}
    if gaps := [name for name, array in arrays.items() if array.layout != "C"]:
        raise TypeError(f"{type(value).__name__}: {', '.join(gaps)} must be contiguous. Use numpy.ascontiguousarray.")
    columns = {name: ArrayColumn(array) if array.ndim == 1 else array for name, array in arrays.items()}
    return ReferenceType(type(value).__name__, columns)


register_model(ReferenceType)(models.OpaqueModel)


@infer_getattr
class _FieldTypes(AttributeTemplate):
    key = ReferenceType

    def generic_resolve(self, reference: ReferenceType, name: str) -> types.Array | None:  # type: ignore[override]
        return reference.arrays.get(name)


@unbox(ReferenceType)
def _to_pointer(reference: ReferenceType, value: Any, c: Any) -> NativeValue:
    """Store the arrays of a tuple side by side for the duration of the call."""
    size = _compute_offsets(c.context, reference)[-1]
    address = cgutils.alloca_once(c.builder, ir.ArrayType(_WORD, size // (_WORD.width // 8)))
    pointer, failed = c.builder.bitcast(address, c.pyapi.voidptr), cgutils.false_bit
    for at, (name, array) in enumerate(reference.arrays.items()):
        native = c.unbox(array, c.pyapi.tuple_getitem(value, at))
        c.builder.store(native.value, _locate_field(c.context, c.builder, reference, pointer, name))
        failed = c.builder.or_(failed, native.is_error)
    return NativeValue(pointer, is_error=failed)


@lower_getattr_generic(ReferenceType)
def _load_field(context: Any, builder: Any, reference: ReferenceType, pointer: Any, name: str) -> Any:
    """Load the array of that name. Its address and length cannot change while a kernel runs (``invariant.load``)."""
    array, place = reference.arrays[name], _locate_field(context, builder, reference, pointer, name)
    model = context.data_model_manager[array]

    def load_part(part: str) -> Any:
        value = builder.load(cgutils.gep_inbounds(builder, place, 0, model.get_field_position(part)))
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    shape, itemsize = load_part("shape"), _WORD(_get_item_size(array.dtype))
    items, *others = cgutils.unpack_tuple(builder, shape, array.ndim)
    strides = [itemsize]
    for length in reversed(others):
        strides.insert(0, builder.mul(strides[0], length))
        items = builder.mul(items, length, flags=["nsw"])
    parts = {
        "nitems": items,
        "itemsize": itemsize,
        "data": load_part("data"),
        "shape": shape,
        "strides": cgutils.pack_array(builder, strides),
    }
    array_struct = ir.Constant(context.get_value_type(array), None)  # nobody owns it
    for part, value in parts.items():
        array_struct = builder.insert_value(array_struct, value, model.get_field_position(part))
    return array_struct


@cache
def _get_item_size(element: types.Type) -> int:
    return int(as_dtype(element).itemsize)


def _locate_field(context: Any, builder: Any, reference: ReferenceType, pointer: Any, name: str) -> Any:
    """Compute the address of an array from its offset. The type of all arrays together has a thousand characters, which
    LLVM would read at each use."""
    at = _compute_offsets(context, reference)[[*reference.arrays].index(name)]
    array = context.get_value_type(reference.arrays[name])
    return cgutils.pointer_add(builder, pointer, at, array.as_pointer())


def _compute_offsets(context: Any, reference: ReferenceType) -> list[int]:
    """Compute the byte offset of each array, and of the end."""
    if not reference.offsets:
        sizes = (context.get_abi_sizeof(context.get_value_type(array)) for array in reference.arrays.values())
        reference.offsets = [0, *accumulate(sizes)]
    return reference.offsets
