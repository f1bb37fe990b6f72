"""The forms of an English word that a question may mean: `decide`, `decided`, `decision`.

The index has words as they were written, so that identifiers and other languages are found as they
are. A question therefore asks for all forms of a word. A form that no turn has costs one lookup.
"""

from __future__ import annotations

SHORTEST = 4  # letters of a word that is inflected
STEM = 3  # letters that remain at least
_VOWELS = "aeiou"
_IRREGULAR = """
be am is are was were been being
become became
begin began begun
break broke broken
bring brought
build built
buy bought
catch caught
child children
choose chose chosen
come came
cost
cut
deal dealt
do did done doing
draw drew drawn
drive drove driven
eat ate eaten
fall fell fallen
feel felt
fight fought
find found
fly flew flown
foot feet
forget forgot forgotten
freeze froze frozen
get got gotten
give gave given
go goes went gone
grow grew grown
have has had
hear heard
hide hid hidden
hold held
hurt
keep kept
know knew known
lead led
learn learnt
leave left
lend lent
life lives
lose lost
make made
man men
mean meant
meet met
person people
pay paid
put
read
rewrite rewrote rewritten
ride rode ridden
rise rose risen
run ran
say said
see saw seen
sell sold
send sent
set
shake shook shaken
shoot shot
show shown
sing sang sung
sit sat
sleep slept
speak spoke spoken
spend spent
split
stand stood
steal stole stolen
stick stuck
strike struck
swim swam swum
take took taken
teach taught
tell told
think thought
throw threw thrown
understand understood
wake woke woken
wear wore worn
win won
wife wives
woman women
write wrote written
index indices indexes
datum data
"""
_FORMS = [line.split() for line in _IRREGULAR.strip().splitlines()]
_BASE_OF = {form: forms[0] for forms in _FORMS for form in forms}
_OTHERS = {forms[0]: forms[1:] for forms in _FORMS}
# Endings that make another word of the same root, each with what it replaces.
_DERIVED = (
    ("ation", ("e", "")),
    ("ition", ("e", "")),
    ("sion", ("de", "d", "t")),
    ("ion", ("e", "")),
    ("ment", ("",)),
    ("ness", ("",)),
    ("ance", ("", "e")),
    ("ence", ("", "e")),
    ("able", ("e", "")),
    ("ive", ("e", "", "ion")),
    ("ity", ("e", "")),
    ("ful", ("",)),
    ("ally", ("al", "")),
    ("ly", ("",)),
    ("al", ("", "e")),
    ("ist", ("y", "")),
    ("or", ("", "e")),
)
_DERIVED_STEM = 4


def word_forms(word: str) -> list[str]:
    """A word and its other forms, the word first: inflections, then derived words."""
    base = _BASE_OF.get(word)
    if base is None and (len(word) < SHORTEST or not (word.isascii() and word.isalpha())):
        return [word]
    bases = [word, *([base] if base else []), *(b for b in _bases(word) if len(b) >= STEM)]
    forms = [form for base in dict.fromkeys(bases) for form in (base, *_inflected(base))]
    forms += [_BASE_OF[form] for form in forms if form in _BASE_OF]
    roots = [root for base in dict.fromkeys(bases) for root in _roots(base)]
    forms += [form for root in roots for form in (root, *_inflected(root))]
    return list(dict.fromkeys(forms))


def _bases(word: str) -> list[str]:
    if word.endswith(("ies", "ied")):
        return [word[:-3] + "y"]
    if word.endswith(("sses", "shes", "ches", "xes", "zes", "oes")):
        return [word[:-2]]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return [word[:-1]]
    for suffix in ("ing", "ed", "er"):
        stem = word.removesuffix(suffix)
        if stem != word and len(stem) >= STEM and any(vowel in stem for vowel in _VOWELS):
            single = [stem[:-1]] if stem[-1] == stem[-2] else []
            return [stem, stem + "e", *single]
    return []


def _inflected(base: str) -> list[str]:
    return [*_OTHERS.get(base, ()), *_regular(base)]


def _regular(base: str) -> list[str]:
    if base.endswith("y") and base[-2] not in _VOWELS:
        return [base[:-1] + "ies", base[:-1] + "ied", base + "ing"]
    if base.endswith("e"):
        return [base + "s", base + "d", base[:-1] + "ing", base + "r", base + "rs"]
    plural = base + ("es" if base.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")
    forms = [plural, base + "ed", base + "ing", base + "er", base + "ers"]
    if base[-1] not in _VOWELS + "wxy" and base[-2] in _VOWELS and base[-3:-2] not in _VOWELS:
        forms += [base + base[-1] + suffix for suffix in ("ed", "ing", "er")]
    return forms


def _roots(word: str) -> list[str]:
    for ending, replaced in _DERIVED:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= _DERIVED_STEM:
            return [stem + end for end in replaced]
    return []
