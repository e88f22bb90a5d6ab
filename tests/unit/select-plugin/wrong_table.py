#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a table of records that is wrong in one plausible way: job_record.priority lies where site_factor does.

Both are 32-bit numbers, the magic number and the block's size are right: only the comparison with the public API can tell.

Usage: wrong_table.py RIGHT.json WRONG.json
"""
import json
import sys
from pathlib import Path


def main():
    table = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    fields = table["structs"]["job_record"]["fields"]
    fields["priority"], fields["site_factor"] = fields["site_factor"], fields["priority"]
    Path(sys.argv[2]).write_text(json.dumps(table), encoding="utf-8")


if __name__ == "__main__":
    main()
