"""Themes of the full screen: our own, and those of OpenCode's theme files (pure)."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from weft.errors import ConfigError

TRANSPARENT: Final = "ansi_default"
MAX_REFERENCES: Final = 20


class Palette(Struct, frozen=True, kw_only=True):
    """The colours of a theme: `#rrggbb`, or `ansi_…` for a colour of the terminal."""

    background: str
    panel: str
    element: str
    border: str
    text: str
    muted: str
    accent: str
    red: str
    green: str
    yellow: str
    blue: str
    magenta: str
    cyan: str
    dark: bool = True

    def find_colour(self, word: str) -> str | None:
        """Return the colour for a word of a style such as `ansired` or `dim`; None if it names no colour."""
        match word:
            case "dim" | "ansibrightblack":
                return self.muted
            case _:
                return getattr(self, word[4:], None) if word.startswith("ansi") else None


WEFT: Final = Palette(
    background="#171b22",
    panel="#1e242e",
    element="#2a3240",
    border="#39445a",
    text="#d8dee9",
    muted="#8592a8",
    accent="#8fb8de",
    red="#e78a8a",
    green="#a3d39c",
    yellow="#ebcb8b",
    blue="#8fb8de",
    magenta="#c7a4d8",
    cyan="#8fd3d3",
)
WEFT_LIGHT: Final = Palette(
    background="#fbfaf7",
    panel="#f1efe8",
    element="#e4e1d6",
    border="#c9c4b4",
    text="#2b2f36",
    muted="#6d7381",
    accent="#2563a8",
    red="#b3312f",
    green="#2e7d32",
    yellow="#8a6100",
    blue="#2563a8",
    magenta="#8a3ea8",
    cyan="#00707c",
    dark=False,
)
# The colours that the terminal itself has, whatever they are.
TERMINAL: Final = Palette(
    background=TRANSPARENT,
    panel=TRANSPARENT,
    element="ansi_bright_black",
    border="ansi_bright_black",
    text=TRANSPARENT,
    muted="ansi_bright_black",
    accent="ansi_blue",
    red="ansi_red",
    green="ansi_green",
    yellow="ansi_yellow",
    blue="ansi_blue",
    magenta="ansi_magenta",
    cyan="ansi_cyan",
)
THEMES: Final[Mapping[str, Palette]] = {"weft": WEFT, "weft-light": WEFT_LIGHT, "terminal": TERMINAL}
# Names of OpenCode's own themes, and the theme that comes nearest.
ALIASES: Final[Mapping[str, str]] = {
    "opencode": "weft",
    "system": "terminal",
    "tokyonight": "tokyo-night",
    "catppuccin": "catppuccin-mocha",
    "rosepine": "rose-pine",
    "one-dark": "atom-one-dark",
    "solarized": "solarized-dark",
}
# For each colour, the keys of a theme file that may have it, the best first.
_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "background": ("background",),
    "panel": ("backgroundPanel", "background"),
    "element": ("backgroundElement", "backgroundPanel"),
    "border": ("border", "borderSubtle"),
    "text": ("text",),
    "muted": ("textMuted", "syntaxComment"),
    "accent": ("primary", "accent"),
    "red": ("error", "diffRemoved"),
    "green": ("success", "diffAdded"),
    "yellow": ("warning",),
    "blue": ("primary", "syntaxFunction"),
    "magenta": ("syntaxKeyword", "accent"),
    "cyan": ("info", "markdownCode"),
}
_ANSI_NAMES: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def to_palette(file: object, *, dark: bool = True, name: str = "") -> Palette:
    """Return the palette of a theme file of OpenCode. Colours that it lacks are our own. Raise `ConfigError` if it has no colours."""
    theme = file.get("theme") if isinstance(file, dict) else None
    if not isinstance(theme, dict):
        raise ConfigError(name or "theme", "it is not a theme file: it has no colours under `theme`")
    definitions = file.get("defs") if isinstance(file, dict) else None
    colours = {**(definitions if isinstance(definitions, dict) else {}), **theme}
    fallback = WEFT if dark else WEFT_LIGHT
    found = {
        field: next((each for key in keys if (each := _find_colour(colours, key, dark=dark))), None)
        or getattr(fallback, field)
        for field, keys in _SOURCES.items()
    }
    return Palette(**found, dark=dark)


def _find_colour(colours: Mapping[str, Any], key: str, *, dark: bool) -> str:
    """Follow references until there is a colour; return an empty text if there is none."""
    value: object = colours.get(key)
    for _ in range(MAX_REFERENCES):
        match value:
            case {"dark": by_day, "light": by_night}:
                value = by_day if dark else by_night
            case bool():
                return ""
            case int() if 0 <= value <= 255:  # noqa: PLR2004  the colours of a terminal
                return to_ansi_name(value)
            case "none" | "transparent":
                return TRANSPARENT
            case str() if is_hex(value):
                return value[:7]
            case str() if value in colours:
                value = colours[value]
            case _:
                return ""
    return ""


def is_hex(text: str) -> bool:
    digits = text[1:]
    return (
        text.startswith("#")
        and len(digits) in (3, 6, 8)
        and all(each in "0123456789abcdefABCDEF" for each in digits)
    )


def to_ansi_name(number: int) -> str:
    """Return a colour of the terminal by its number: the first 16 by name, the others as the colour that they are."""
    if number < 16:  # noqa: PLR2004  eight, and eight bright ones
        bright = "bright_" if number > 7 else ""  # noqa: PLR2004  as above
        return f"ansi_{bright}{_ANSI_NAMES[number % 8]}"
    if number >= 232:  # noqa: PLR2004  24 greys
        grey = 8 + (number - 232) * 10
        return f"#{grey:02x}{grey:02x}{grey:02x}"
    steps = (0, 95, 135, 175, 215, 255)
    rest = number - 16
    return f"#{steps[rest // 36]:02x}{steps[rest // 6 % 6]:02x}{steps[rest % 6]:02x}"
