"""Numbers for names, stored compactly: an object for each of millions of names takes too much
memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

WIDTH = 16  # bytes of a UUID
UUID_CHARACTERS = 36
END = b"\xff"  # never in UTF-8
HELD_NAMES = 16_384  # that are not packed; most sessions have fewer records


class Numbering:
    """Numbers for names, from 0, in the order of their addition.

    The latest names are in a dict. The others are packed into a hash table with open addressing, at
    most half full, whose slots are a number plus 1, or 0 if empty. A UUID takes about 30 bytes,
    other names their length more.
    """

    def __init__(self, *, forgets: bool = False, held: int = HELD_NAMES) -> None:
        """`forgets`: other names than UUIDs are packed as hashes, and name() is not called."""
        self._numbers: dict[str, int] = {}  # of the latest
        self._names: list[str] = []
        self._packed = 0  # number of packed names
        self._keys = bytearray()
        self._places = array("I", bytes(4))
        self._forgets = forgets
        self._held = held
        self._others = array("I")  # the numbers of packed names that are not UUIDs
        self._other_keys = bytearray()  # of these; the others are in _keys
        self._ends = array("I", [0])

    def __len__(self) -> int:
        return self._packed + len(self._names)

    def __contains__(self, name: str) -> bool:
        return self.get(name) >= 0

    def get(self, name: str) -> int:
        """The number of a name; -1 if it has none."""
        number = self._numbers.get(name, -1)
        return self._find(name) if number < 0 and self._packed else number

    def add(self, name: str) -> int:
        """The number of a name; a new one if it has none."""
        number = self.get(name)
        if number < 0:
            number = self._packed + len(self._names)
            self._numbers[name] = number
            self._names.append(name)
            if len(self._names) == self._held:
                self._pack()
        return number

    def name(self, number: int) -> str:
        """The inverse of get()."""
        if number >= self._packed:
            return self._names[number - self._packed]
        key = self._key(number)
        if len(key) != WIDTH:
            return key.removesuffix(END).decode(errors="surrogatepass")
        digits = key.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def close(self) -> None:
        """Free what only get() and add() need: from now on only name() is called."""
        if self._packed:
            self._numbers.clear()
            self._places = array("I", bytes(4))

    def _key(self, number: int) -> bytes:
        """The packed form of a name: the bytes of a UUID, or the UTF-8 of another."""
        if self._others:
            other = bisect_left(self._others, number)
            if other < len(self._others) and self._others[other] == number:
                return bytes(self._other_keys[self._ends[other] : self._ends[other + 1]])
            number -= other
        return bytes(self._keys[WIDTH * number : WIDTH * number + WIDTH])

    def _find(self, name: str) -> int:
        key = packed(name) or self._other(name)
        places, mask = self._places, len(self._places) - 1
        place = hash(key) & mask
        while number := places[place]:
            if self._key(number - 1) == key:
                return number - 1
            place = place + 1 & mask
        return -1

    def _other(self, name: str) -> bytes:
        """The packed form of a name that is not a UUID. Its length is never that of a UUID, unless
        it is a hash."""
        text = name.encode(errors="surrogatepass")
        if self._forgets:
            return _digest(text)
        return text + END if len(text) == WIDTH else text

    def _pack(self) -> None:
        for name in self._names:
            key = packed(name)
            if key is None and not self._forgets:
                self._others.append(self._packed)
                self._other_keys += self._other(name)
                self._ends.append(len(self._other_keys))
            else:
                self._keys += key or self._other(name)
            self._packed += 1
        self._numbers.clear()
        self._names.clear()
        # At most half full: with linear probing, lookups in a fuller table become long.
        if 2 * self._packed > len(self._places):
            size = 4 << (2 * self._packed).bit_length()  # bytes
            self._places = array("I", bytes(size))
            self._put(0)
        else:
            self._put(self._packed - self._held)

    def _put(self, first: int) -> None:
        places, mask = self._places, len(self._places) - 1
        for number in range(first, self._packed):
            place = hash(self._key(number)) & mask
            while places[place]:
                place = place + 1 & mask
            places[place] = number + 1


class Sets:
    """Numbers for sets of numbers, such as the files that contain a record: there are many records,
    and few such sets."""

    def __init__(self) -> None:
        self._sets: list[frozenset[int]] = []
        self._numbers: dict[frozenset[int], int] = {}

    def of(self, numbers: Iterable[int]) -> int:
        """The number of a set; equal sets have the same."""
        members = frozenset(numbers)
        number = self._numbers.setdefault(members, len(self._sets))
        if number == len(self._sets):
            self._sets.append(members)
        return number

    def __getitem__(self, number: int) -> frozenset[int]:
        return self._sets[number]

    def joined(self, numbers: Iterable[int]) -> int:
        """The number of the union of several sets."""
        sets = set(numbers)
        if len(sets) == 1:
            return sets.pop()
        return self.of(member for number in sets for member in self._sets[number])


def packed(name: str) -> bytes | None:
    """The bytes of a UUID in its usual form, lower case with dashes; None for any other name."""
    if len(name) != UUID_CHARACTERS or name[8:24:5] != "----" or name != name.lower():
        return None
    try:
        key = bytes.fromhex(name.replace("-", ""))
    except ValueError:
        return None
    return key if len(key) == WIDTH else None  # fromhex() skips blanks between digits


def _digest(text: bytes) -> bytes:
    import hashlib  # it loads OpenSSL, which most commands do not need

    return hashlib.blake2b(text, digest_size=WIDTH).digest()
