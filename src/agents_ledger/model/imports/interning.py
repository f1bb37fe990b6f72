"""Numbers for names, packed: where there are millions of them, an object for each is too much."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

WIDTH = 16  # bytes of a UUID
LETTERS = 36
END = b"\xff"  # no letter
HELD_NAMES = 16_384  # that are not packed: most sessions have fewer records


class Numbering:
    """Numbers from 0 for names, in the order they come.

    The latest are as they are; the others are packed, where a UUID takes some 30 bytes, and any
    other name as many more as it has letters: in a table of open addresses, never more than half
    full. A place holds one more than a number, or 0.
    """

    def __init__(self, *, forgets: bool = False, held: int = HELD_NAMES) -> None:
        """`forgets`: of names that are no UUIDs only hashes are packed, and name() is not asked."""
        self._numbers: dict[str, int] = {}  # of the latest
        self._names: list[str] = []
        self._packed = 0  # how many are
        self._keys = bytearray()
        self._places = array("I", bytes(4))
        self._forgets = forgets
        self._held = held
        self._others = array("I")  # the numbers of names that are packed, and no UUIDs
        self._letters = bytearray()  # of these, which are not among the keys
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
        """The number of a name, the next one if it has none yet."""
        number = self.get(name)
        if number < 0:
            number = self._packed + len(self._names)
            self._numbers[name] = number
            self._names.append(name)
            if len(self._names) == self._held:
                self._pack()
        return number

    def name(self, number: int) -> str:
        """The name that has a number."""
        if number >= self._packed:
            return self._names[number - self._packed]
        key = self._key(number)
        if len(key) != WIDTH:
            return key.removesuffix(END).decode(errors="surrogatepass")
        letters = key.hex()
        return f"{letters[:8]}-{letters[8:12]}-{letters[12:16]}-{letters[16:20]}-{letters[20:]}"

    def close(self) -> None:
        """From now on only names are asked for, by their numbers."""
        if self._packed:
            self._numbers.clear()
            self._places = array("I", bytes(4))

    def _key(self, number: int) -> bytes:
        """What is packed of a name: of a UUID its bytes, of another one its letters."""
        if self._others:
            other = bisect_left(self._others, number)
            if other < len(self._others) and self._others[other] == number:
                return bytes(self._letters[self._ends[other] : self._ends[other + 1]])
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
        """What is packed of a name that is no UUID; it is never as long as one, unless it is a
        hash."""
        letters = name.encode(errors="surrogatepass")
        if self._forgets:
            return _digest(letters)
        return letters + END if len(letters) == WIDTH else letters

    def _pack(self) -> None:
        for name in self._names:
            key = packed(name)
            if key is None and not self._forgets:
                self._others.append(self._packed)
                self._letters += self._other(name)
                self._ends.append(len(self._letters))
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
        """The number of a set, the same one whenever it is asked for."""
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
    """The bytes of a UUID as programs write it; None for any other name."""
    if len(name) != LETTERS or name[8:24:5] != "----" or name != name.lower():
        return None
    try:
        key = bytes.fromhex(name.replace("-", ""))
    except ValueError:
        return None
    # bytes.fromhex also accepts blanks between the digits.
    return key if len(key) == WIDTH else None


def _digest(letters: bytes) -> bytes:
    # It loads OpenSSL, which most programs do not need at once.
    import hashlib

    return hashlib.blake2b(letters, digest_size=WIDTH).digest()
