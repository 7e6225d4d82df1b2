"""Floor: write the same zip with `zipfile` from prepared bytes.

Usage: build_filevault.py PACKAGE COUNT. PACKAGE is one package that the project wrote: its entries are read once, and
written COUNT times with the same names and methods.
"""

import io
import sys
import zipfile
from pathlib import Path

from least import report_least

with zipfile.ZipFile(Path(sys.argv[1])) as archive:
    entries = [(item.filename, item.date_time, item.compress_type, archive.read(item)) for item in archive.infolist()]


def build(_number):
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        for name, date_time, method, data in entries:
            archive.writestr(zipfile.ZipInfo(name, date_time), data, compress_type=method)
    into.getvalue()


report_least(build, int(sys.argv[2]))
