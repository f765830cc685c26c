"""The six-step check against any gateway, and a gateway to run it on."""

from dabom.app.demo.check import Check
from dabom.app.demo.gateway import started_gateway
from dabom.app.demo.records import Call, Report, Row
from dabom.app.demo.samples import Samples, find_samples
from dabom.app.demo.throughput import Throughput, compare, summary_of

__all__ = [
    "Call",
    "Check",
    "Report",
    "Row",
    "Samples",
    "Throughput",
    "compare",
    "find_samples",
    "started_gateway",
    "summary_of",
]
