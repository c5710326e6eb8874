"""Where and when a measurement was made."""

import os
import platform
from datetime import datetime, timezone


def describe():
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def cpu_model():
    """The processor's name, and its widest vector extension where Linux tells."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = dict(line.split(":", 1) for line in file if ":" in line)
    except OSError:
        return platform.processor() or platform.machine()
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    name = fields.get("model name", platform.machine())
    widest = [v for v in ("avx512f", "avx2") if v in fields.get("flags", "").split()]
    return f"{name} ({widest[0]})" if widest else name
