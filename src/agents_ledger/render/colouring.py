"""Code coloured by CSS classes. Imported when first needed: Pygments takes a while."""

from __future__ import annotations

from functools import lru_cache

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import TextLexer, get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

_FORMATTER = HtmlFormatter(nowrap=True, classprefix="c-")


def _lexer(language: str, path: str) -> Lexer:
    try:
        return get_lexer_by_name(language) if language else get_lexer_for_filename(path)
    except (ClassNotFound, ValueError):
        return TextLexer()


@lru_cache(maxsize=256)
def coloured(text: str, language: str, path: str) -> Markup:
    """Code in a language, or as in the file at a path."""
    lexer = _lexer(language, path)
    if isinstance(lexer, TextLexer):
        return Markup('<pre class="code">{}</pre>').format(text)
    inner = highlight(text, lexer, _FORMATTER)
    return Markup(f'<pre class="code">{inner}</pre>')  # noqa: S704 - Pygments escapes
