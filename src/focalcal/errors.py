"""Every error that focalcal raises on purpose.

FocalCalError
└── InputError      what the caller gave breaks a stated rule (also a ValueError)
"""


class FocalCalError(Exception):
    """The root of all errors raised by focalcal."""


class InputError(FocalCalError, ValueError):
    """What the caller gave breaks a rule; the message names the argument, the rule, what came and the way out."""
