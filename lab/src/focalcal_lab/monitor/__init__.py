"""The training monitor: records, epoch by epoch, what the papers plot."""

from focalcal_lab.monitor.accumulators import gradient_edges
from focalcal_lab.monitor.callback import MonitorCallback
from focalcal_lab.monitor.file import read_monitor

__all__ = ["MonitorCallback", "gradient_edges", "read_monitor"]
