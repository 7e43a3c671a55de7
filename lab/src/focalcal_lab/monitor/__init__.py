"""The training monitor: records, epoch by epoch, what the papers plot."""

from focalcal_lab.monitor.callback import MonitorCallback, read_monitor

__all__ = ["MonitorCallback", "read_monitor"]
