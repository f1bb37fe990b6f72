"""The Merkle tree of RFC 6962: its root, and proofs that a leaf is in it.

Peaks are the roots of the perfect trees that make up a tree, largest first: enough to grow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

HASH_BYTES = 32
# The hash of nothing; computed, it would load OpenSSL, which commands that only read do not need.
EMPTY = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
_LEAF, _NODE = b"\x00", b"\x01"


def leaf_hash(data: bytes) -> bytes:
    """The hash of a leaf."""
    from hashlib import sha256

    return sha256(_LEAF + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    from hashlib import sha256

    return sha256(_NODE + left + right).digest()


class Peaks:
    """A tree that grows by leaves, of which only the peaks are kept."""

    def __init__(self, size: int = 0, peaks: bytes = b"") -> None:
        self.size = size
        self._peaks = [peaks[at : at + HASH_BYTES] for at in range(0, len(peaks), HASH_BYTES)]
        if len(self._peaks) != size.bit_count():
            raise ValueError(f"a tree of {size} leaves does not have {len(self._peaks)} peaks")

    def __bytes__(self) -> bytes:
        return b"".join(self._peaks)

    def add(self, leaves: Iterable[bytes]) -> None:
        """Append leaves, given by their hashes."""
        peaks, size = self._peaks, self.size
        for leaf in leaves:
            # Each trailing 1 of the size is a perfect tree as large as what it is joined with.
            full, peak = size, leaf
            while full & 1:
                peak = node_hash(peaks.pop(), peak)
                full >>= 1
            peaks.append(peak)
            size += 1
        self.size = size

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        if not self._peaks:
            return EMPTY
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = node_hash(peak, root)
        return root


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root of the tree of these leaves."""
    peaks = Peaks()
    peaks.add(leaves)
    return peaks.root


def _split(size: int) -> int:
    """The largest power of two below the size."""
    return 1 << (size - 1).bit_length() - 1


def inclusion(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The audit path of a leaf, from the leaf up (RFC 9162, 2.1.3.1)."""
    path: list[bytes] = []
    low, high = 0, len(leaves)
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(root_of(leaves[middle:high]))
            high = middle
        else:
            path.append(root_of(leaves[low:middle]))
            low = middle
    return path[::-1]
