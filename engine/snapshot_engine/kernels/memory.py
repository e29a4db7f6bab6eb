"""Loads and stores of eight bytes at any address. FROZEN, like `mixing.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from snapshot_engine.kernels.compiled import inner

COPY_SLACK = 16

WORD = ir.IntType(64)
BYTE = ir.IntType(8)


def _intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Called from kernels with all arguments but the first, which numba adds."""
    return cast(Callable[..., Any], intrinsic(function))


@_intrinsic
def address_of(typing: Any, array: Any) -> Any:  # noqa: ARG001 - numba asks for the argument
    """The data's address. Loops use addresses since handing on an array counts its references."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        proxy: Any = cgutils.create_struct_proxy(signature.args[0])  # type: ignore[no-untyped-call]
        return builder.ptrtoint(proxy(context, builder, value=args[0]).data, WORD)

    return types.int64(array), generate


@_intrinsic
def load_word(typing: Any, address: Any) -> Any:  # noqa: ARG001
    """Eight bytes as a little-endian word; the caller makes sure that they are there."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], WORD.as_pointer()), align=1, typ=WORD)

    return types.uint64(types.int64), generate


@_intrinsic
def store_word(typing: Any, address: Any, word: Any) -> Any:  # noqa: ARG001
    """Write eight bytes; the caller makes sure that the room is there."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), generate


@_intrinsic
def load_byte(typing: Any, address: Any) -> Any:  # noqa: ARG001
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], BYTE.as_pointer()), typ=BYTE)

    return types.uint8(types.int64), generate


@_intrinsic
def store_byte(typing: Any, address: Any, byte: Any) -> Any:  # noqa: ARG001
    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.uint8), generate


@_intrinsic
def prefetch(typing: Any, address: Any) -> Any:  # noqa: ARG001
    """Have the cache line brought while other work goes on; any address will do."""

    def generate(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], BYTE.as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        to_read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(function, [pointer, to_read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@inner
def copy_bytes(source: int, length: int, source_end: int, target: int) -> None:
    """Copy, and spoil up to COPY_SLACK bytes behind the copy: so fill a target in ascending order.

    All but `length` are addresses; nothing at or behind `source_end` is read.
    """
    if source + length + COPY_SLACK <= source_end:
        done = 0
        while done < length:
            store_word(target + done, load_word(source + done))
            store_word(target + done + 8, load_word(source + done + 8))
            done += 16
    else:
        for i in range(length):
            store_byte(target + i, load_byte(source + i))
