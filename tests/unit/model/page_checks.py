"""What every page must be: whole elements, no script, nothing loaded, text that was escaped."""

from html.parser import HTMLParser

ALLOWED = {"div", "b", "pre", "table", "thead", "tbody", "tr", "th", "td", "svg", "g", "text"} | {
    "rect",
    "title",
}


class Page(HTMLParser):
    """Reads a page strictly: each element that begins ends, in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.elements: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"never ended: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED
        assert not [name for name, _ in attrs if name.startswith("on") or name in {"href", "src"}]
        self.open.append(tag)
        self.elements.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.texts)
