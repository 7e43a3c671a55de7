"""Every error that focalcal raises on purpose, and its one warning.

FocalCalError
├── InputError          what the caller gave breaks a stated rule (also a ValueError)
│   └── FileFormatError a file is not what it should be: truncated, altered, of another version
├── NotFittedError      a calibrator is used before `fit` (also a ValueError and an AttributeError, as in scikit-learn)
└── MissingExtraError   an optional package is not installed (also an ImportError)

UserWarning
└── InputWarning        what the caller gave is allowed but looks like a mistake
"""


class FocalCalError(Exception):
    """The root of all errors raised by focalcal."""


class InputError(FocalCalError, ValueError):
    """What the caller gave breaks a rule; the message names the argument, the rule, what came and the way out."""


class FileFormatError(InputError):
    """A file is not what it should be; the message says what is wrong with it."""


class NotFittedError(FocalCalError, ValueError, AttributeError):
    """A calibrator, or one of its fitted values, is used before `fit`."""


class MissingExtraError(FocalCalError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class InputWarning(UserWarning):
    """What the caller gave is allowed but looks like a mistake, such as probabilities passed as logits."""
