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
    """The root of all errors raised by focalcal.

    >>> issubclass(InputError, FocalCalError), issubclass(NotFittedError, FocalCalError)
    (True, True)
    """


class InputError(FocalCalError, ValueError):
    """What the caller gave breaks a rule; the message names the argument, the rule, what came and the way out.

    >>> import focalcal as fc
    >>> try:
    ...     fc.metrics.ece([[0.9, 0.3]], [0], kind="probs")
    ... except InputError as error:
    ...     print(error)
    scores: each row must sum to 1 within 1e-05; row 0 sums to 1.2. Give the probabilities of all classes, or divide
    each row by its sum.
    """


class FileFormatError(InputError):
    """A file is not what it should be; the message says what is wrong with it.

    >>> import focalcal as fc, os, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "calibrator.json")
    ...     _ = path.write_text("{}")
    ...     try:
    ...         fc.load_calibrator(path)
    ...     except FileFormatError as error:
    ...         print(str(error).replace(folder + os.sep, ""))
    calibrator.json: not a focalcal calibrator (its format is None).
    """


class NotFittedError(FocalCalError, ValueError, AttributeError):
    """A calibrator, or one of its fitted values, is used before `fit`.

    >>> import focalcal as fc
    >>> try:
    ...     fc.TemperatureScaling().predict_probs([[2.0, 0.0]])
    ... except NotFittedError as error:
    ...     print(error)
    TemperatureScaling is not fitted yet: it has no temperature_. Call fit(logits, labels) first.
    """


class MissingExtraError(FocalCalError, ImportError):
    """An optional package is not installed; the message names the extra that brings it.

    >>> issubclass(MissingExtraError, ImportError)
    True
    """


class InputWarning(UserWarning):
    """What the caller gave is allowed but looks like a mistake, such as probabilities passed as logits.

    >>> import focalcal as fc, warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = fc.metrics.nll([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [0, 1, 0])
    >>> print(caught[0].message)
    scores: these values look like probabilities but are taken as logits; pass kind="probs".
    """
