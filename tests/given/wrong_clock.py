"""Run a Python program with a clock that is wrong: wrong_clock.py SECONDS PROGRAM [ARGUMENT …]"""

import runpy
import sys
import time

seconds, *sys.argv = sys.argv[1:]
right, right_ns = time.time, time.time_ns
time.time = lambda: right() + float(seconds)
time.time_ns = lambda: right_ns() + int(float(seconds) * 1e9)
runpy.run_path(sys.argv[0], run_name="__main__")
