"""A search for texts in lines: which groups of rows of a table's files it has to read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from logpipeline_spark.errors import Refused
from logpipeline_spark.table.entry import FileEntry
from logpipeline_spark.table.filters import Chosen, chosen
from logpipeline_spark.table.storage import Storage, StorageFailed
from logpipeline_spark.table.words import Hashes, words_of

# A bucket answers each request after some 30 ms, and many at once.
ASKED_AT_ONCE = 16


@dataclass(frozen=True)
class Search:
    """Lines that hold all *texts*, each as it is written and as whole words: no word of the line
    extends past an end of the text. So the words of a text are words of the line, as filters have
    them.

    Raises:
        Refused: a text is empty, or no text.
    """

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        for text in self.texts:
            if not text:
                raise Refused("--grep is empty: give a word, or leave it out.")
            try:
                text.encode()
            except UnicodeEncodeError:
                raise Refused(f"--grep {text!a} is no UTF-8: give it as text.") from None

    @cached_property
    def words(self) -> Hashes:
        """The numbers of all words of all texts. Without any, everything is read."""
        return np.unique(np.concatenate([words_of(text) for text in self.texts]))

    def chosen(self, storage: Storage, entries: Sequence[FileEntry]) -> dict[str, Chosen]:
        """Return which groups of files may hold such lines, by path; of other files all may."""
        if not len(self.words):
            return {}

        def ask(entry: FileEntry) -> Chosen | None:
            try:
                return chosen(storage, entry, self.words)
            except StorageFailed:
                # Who may read the files and not the filters reads more; an outage is said there.
                return None

        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            answers = pool.map(ask, entries)
            return {
                entry.path: answer
                for entry, answer in zip(entries, answers, strict=True)
                if answer is not None
            }
