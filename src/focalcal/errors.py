"""Every error that focalcal raises on purpose, and its one warning.

FocalCalError
├── InputError          what the caller gave breaks a stated rule (also a ValueError)
└── MissingExtraError   an optional package is not installed (also an ImportError)

UserWarning
└── InputWarning        what the caller gave is allowed but looks like a mistake
"""


class FocalCalError(Exception):
    """The root of all errors raised by focalcal."""


class InputError(FocalCalError, ValueError):
    """What the caller gave breaks a rule; the message names the argument, the rule, what came and the way out."""


class MissingExtraError(FocalCalError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class InputWarning(UserWarning):
    """What the caller gave is allowed but looks like a mistake, such as probabilities passed as logits."""
