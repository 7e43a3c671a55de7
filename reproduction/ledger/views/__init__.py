"""What `focalcal claims show` shows of a claim: small tables and curves, computed when asked for."""

from reproduction.ledger.views.choose import views_of
from reproduction.ledger.views.view import View

__all__ = ["View", "views_of"]
