"""``python -m tests.language messages`` prints the visible strings, ``... check`` judges their words."""

from __future__ import annotations

import sys

from tests.language.messages import collect_messages, format_messages
from tests.language.prose import find_prose_faults, list_pages
from tests.language.words import MOST_WORDS, find_long_sentences, find_replaced_names, find_replaced_phrases


def main(command: str) -> int:
    messages = collect_messages()
    if command == "messages":
        print(format_messages(messages), end="")
        return 0
    long = list(find_long_sentences(messages))
    if long:
        print(f"Sentences over {MOST_WORDS} words, which a reader may lose:", *long, sep="\n  ")
    replaced = [*find_replaced_names(), *find_replaced_phrases(messages)]
    if replaced:
        print("Words that the project replaced:", *replaced, sep="\n  ")
    prose = list(find_prose_faults(list_pages(), messages))
    if prose:
        print("What proselint found:", *prose, sep="\n  ")
    print(f"Language: {len(messages)} visible strings, {len(long)} long sentences, {len(replaced)} replaced words.")
    return bool(replaced or prose)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
