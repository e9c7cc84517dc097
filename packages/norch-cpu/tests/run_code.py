"""Code in a process of its own."""

import os
import subprocess
import sys


def run_python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )
    return done.returncode, done.stdout.strip(), done.stderr
