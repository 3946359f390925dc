"""Write the generated pages: ``python -m tests.docs``."""

from tests.docs import incidents, reference
from tests.docs.pages import DOCS

for name, text in {**reference.pages(), **incidents.pages()}.items():
    path = DOCS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
