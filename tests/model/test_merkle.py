"""The Merkle tree against the vectors of Certificate Transparency, and by its definition."""

from __future__ import annotations

from hashlib import sha256

import pytest

from agents_ledger.model.evidence import merkle
from agents_ledger.model.evidence.merkle import Peaks

# The eight leaves of the reference implementation of RFC 6962, and the root of the first n.
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
HASHES = [merkle.leaf_hash(leaf) for leaf in LEAVES]


def test_an_empty_tree_has_the_hash_of_nothing() -> None:
    assert merkle.root_of([]) == sha256(b"").digest()


@pytest.mark.parametrize("size", range(1, 9))
def test_roots_are_those_of_the_reference(size: int) -> None:
    assert merkle.root_of(HASHES[:size]).hex() == ROOTS[size - 1]


@pytest.mark.parametrize("size", range(9))
def test_a_tree_goes_on_from_its_peaks(size: int) -> None:
    begun = Peaks()
    begun.add(HASHES[:size])

    resumed = Peaks(size, bytes(begun))
    resumed.add(HASHES[size:])

    assert resumed.root.hex() == ROOTS[7]


def test_peaks_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="peaks"):
        Peaks(3, bytes(32))


def root_by_path(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """From the definition: the path of the half that a leaf is in, and the other half's root."""
    if size == 1:
        assert path == []
        return leaf
    half = 1 << (size - 1).bit_length() - 1
    *below, other = path
    if index < half:
        return merkle.node_hash(root_by_path(leaf, index, half, below), other)
    return merkle.node_hash(other, root_by_path(leaf, index - half, size - half, below))


def test_every_leaf_of_every_tree_is_proven() -> None:
    leaves = [merkle.leaf_hash(bytes([number])) for number in range(40)]
    for size in range(1, 41):
        root = merkle.root_of(leaves[:size])
        for index in range(size):
            path = merkle.inclusion(leaves[:size], index)
            assert root_by_path(leaves[index], index, size, path) == root
            assert len(path) <= (size - 1).bit_length()
