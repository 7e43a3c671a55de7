"""What `focalcal claims show` shows of a claim: small tables and curves, computed when asked for."""

from focalcal.lab.ledger.views.choose import views_of
from focalcal.lab.ledger.views.view import View

__all__ = ["View", "views_of"]
