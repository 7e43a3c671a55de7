"""What calibrators are fitted on: logits and labels, read by blocks of rows as often as a fit asks for them.

Every fit that is a sum over rows is written against `FitData.reduce` or `FitData.total`, one call a pass, and so serves
arrays, streams and clusters alike.
"""

from focalcal.calibrators.data.block import Block
from focalcal.calibrators.data.fit import FitData, P
from focalcal.calibrators.data.sample import Sample, sampled
from focalcal.calibrators.data.sources import data_of_arrays, data_of_stream

__all__ = ["Block", "FitData", "P", "Sample", "data_of_arrays", "data_of_stream", "sampled"]
