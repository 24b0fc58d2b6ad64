#!/usr/bin/env python3
"""The program in README.md compiles, runs, and prints what README.md says.

readme.py COMPILER SOURCE_ROOT LIBRARY_FOLDER
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

compiler, root, libraries = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
readme = (root / "README.md").read_text()
program = re.search(r"^```cpp\n(.*?)^```", readme, re.M | re.S).group(1)
expected = re.search(r"^It prints\n\n```\n(.*?)^```", readme, re.M | re.S).group(1)

with tempfile.TemporaryDirectory() as folder:
    source = Path(folder, "hello.cc")
    source.write_text(program)
    binary = Path(folder, "hello")
    # The line of the README, with what pkg-config says once Manta is installed.
    subprocess.run([compiler, "-std=c++20", "-O2", source, "-o", binary, f"-I{root}/include", f"-L{libraries}", "-lmanta",
                    f"-Wl,-rpath,{libraries}"], check=True)
    output = subprocess.run([binary], check=True, timeout=30, stdout=subprocess.PIPE, text=True).stdout

if output != expected:
    sys.exit(f"it prints\n{output}\nand not, as README.md says,\n{expected}")
