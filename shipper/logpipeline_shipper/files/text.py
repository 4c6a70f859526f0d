"""Whether a file is text: wtmp, lastlog and journals are not shipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from logpipeline_shipper.files.opening import Moved, TooManyOpen, Unreadable, open_reader
from logpipeline_shipper.files.reading import leading_nuls
from logpipeline_shipper.files.sources import ChainFile

# So much of a file, behind the NULs that it may begin with, tells what it is.
SAMPLE_BYTES = 64 * 1024
# A shorter sample with a line in it is taken for text whatever it holds.
_SAMPLE_BYTES_MIN = 256
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x08\x1b"))
_CONTROL_SHARE_MAX = 0.3
_JOURNAL_MAGIC = b"LPKSHHRH"


class TextCheck:
    """The verdicts on the files of one folder; each file is looked at once."""

    def __init__(self, report: Callable[[Path, str], None]) -> None:
        self._report = report
        self._verdicts: dict[str, tuple[tuple[int, int, int], bool]] = {}

    def is_text(self, file: ChainFile) -> bool | None:
        """Return whether *file* is text; None while it holds nothing that tells."""
        known = self._verdicts.get(file.path.name)
        if known is not None and known[0] == file.identity:
            return known[1]
        if not file.size:
            return None
        try:
            reader = open_reader(file, follow_link=False)
        except (Moved, TooManyOpen):
            return True
        except Unreadable as error:
            # It stays in its chain, which tries it again and counts it.
            self._report(file.path, error.reason)
            return True
        try:
            sample = reader.read(leading_nuls(reader), SAMPLE_BYTES)
        except OSError:
            return True
        finally:
            reader.close()
        if not sample:
            return None
        verdict = not is_binary(sample)
        # A first line that is being written may hold a NUL and show its end only later.
        if verdict or b"\n" in sample or len(sample) == SAMPLE_BYTES:
            self._verdicts[file.path.name] = (file.identity, verdict)
        return verdict

    def keep(self, names: set[str]) -> None:
        """Forget files that are not among *names*."""
        self._verdicts = {name: known for name, known in self._verdicts.items() if name in names}


def is_binary(sample: bytes) -> bool:
    """Return whether a file that begins with *sample* is no text: a good part of it are control
    characters.
    """
    if sample.startswith(_JOURNAL_MAGIC):
        return True
    if b"\0" not in sample or (b"\n" in sample and len(sample) < _SAMPLE_BYTES_MIN):
        return False
    controls = len(sample) - len(sample.translate(None, _CONTROL))
    return controls > len(sample) * _CONTROL_SHARE_MAX
