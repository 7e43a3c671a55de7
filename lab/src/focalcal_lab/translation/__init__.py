"""Machine translation: parallel text, a Transformer's beam search with a temperature inside, token-level calibration.

Source: [mukhoti2020, Sec. 5.2].
"""
