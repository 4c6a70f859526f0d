"""Quantities as the API server stores them, so that a child which is applied again is no change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from logpipeline.quantity import format_bytes

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]*)([A-Za-z]*|[eE][+-]?[0-9]+)")
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# Kubernetes rounds up to nano units, and keeps less than this of a binary suffix as a number.
_NANO = Decimal("1e-9")
_BINARY_MIN = 1024
_DIGITS_MAX = 64


def canonical(value: object) -> object:
    """Return the quantity *value* in Kubernetes' canonical form; what is none is left to the API
    server to refuse.
    """
    found = _QUANTITY.fullmatch(str(value)) if len(str(value)) <= _DIGITS_MAX else None
    if found is None or isinstance(value, bool) or not any(map(str.isdigit, found[1])):
        return value
    number, suffix = Decimal(found[1]), found[2]
    if suffix in _BINARY:
        return _binary(number * _BINARY[suffix])
    if suffix in _DECIMAL:
        return _decimal(number.scaleb(_DECIMAL[suffix]))
    # Kubernetes keeps an exponent as one; nobody writes it.
    return value


def quantity(size_bytes: int) -> str:
    """Return *size_bytes* as a quantity in canonical form."""
    return str(canonical(format_bytes(size_bytes)))


def canonical_resources(resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container's requests and limits with each quantity in canonical form."""
    return {
        kind: {name: canonical(value) for name, value in amounts.items()}
        if isinstance(amounts, Mapping)
        else amounts
        for kind, amounts in resources.items()
    }


def _decimal(number: Decimal) -> str:
    number = number.quantize(_NANO, rounding=ROUND_CEILING)
    for suffix, exponent in sorted(_DECIMAL.items(), key=lambda pair: -pair[1]):
        scaled = number.scaleb(-exponent)
        if number and scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffix}"
    return "0"


def _binary(number: Decimal) -> str:
    if abs(number) < _BINARY_MIN or number != number.to_integral_value():
        return _decimal(number)
    count = int(number)
    for suffix, size in reversed(_BINARY.items()):
        if count % size == 0:
            return f"{count // size}{suffix}"
    return str(count)
