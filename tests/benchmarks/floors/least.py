"""CPU time of many equal items by their fastest part: neighbours slow parts down, and never speed one up."""

import json
import time

PARTS = 100


def report_least(work, count):
    """Call `work(number)` `count` times, and print the CPU seconds of the fastest part and how many calls it had."""
    size, seconds = max(1, count // PARTS), []
    for part in range(PARTS):
        begin = time.process_time()
        for number in range(part * size, (part + 1) * size):
            work(number)
        seconds.append(time.process_time() - begin)
    print(json.dumps({"cpu_seconds": min(seconds), "count": size}))
